package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/engine/internal/tap"
)

const (
	apiTap      = "/api/v1/tap"    // samples of live records as NDJSON
	defaultRate = 10               // samples per second and stage
	tapSilence  = 10 * time.Second // then an empty line is sent, to notice a client that is gone
)

// tap sends samples as lines of JSON until the client disconnects or the server ends.
func (s *Server) tap(w http.ResponseWriter, r *http.Request) {
	rate := defaultRate
	if text := r.FormValue("rate"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > tap.MaxRate {
			reply(w, http.StatusBadRequest, fmt.Sprintf("rate is a number from 1 to %d\n",
				tap.MaxRate))
			return
		}
		rate = n
	}
	subscription, err := s.o.Tap(r.FormValue("route"), r.FormValue("stage"), rate)
	switch {
	case errors.Is(err, ErrNoRoute):
		reply(w, http.StatusNotFound, err.Error()+"\n")
		return
	case errors.Is(err, tap.ErrBusy):
		reply(w, http.StatusServiceUnavailable, err.Error()+"\n")
		return
	case err != nil:
		reply(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	defer subscription.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	silence := time.NewTicker(tapSilence)
	defer silence.Stop()
	for {
		_ = out.SetWriteDeadline(time.Now().Add(eventTimeout)) // tests have no deadlines
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.stopping:
			return
		case <-silence.C:
			_, err = io.WriteString(w, "\n")
		case x := <-subscription.C():
			err = enc.Encode(x)
		}
		if err != nil {
			return
		}
	}
}
