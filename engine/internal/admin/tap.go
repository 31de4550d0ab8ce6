package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/engine/internal/tap"
)

const (
	apiTap      = "/api/v1/tap"    // samples of live records as NDJSON
	defaultRate = 10               // samples per second and stage
	tapSilence  = 10 * time.Second // interval of empty lines, which detect a client that is gone
)

// tap sends samples as lines of JSON until the client disconnects or the server ends.
func (s *Server) tap(w http.ResponseWriter, r *http.Request) {
	rate, ok := numberOf(w, r, "rate", defaultRate, tap.MaxRate)
	if !ok {
		return
	}
	subscription, err := s.o.Tap(r.FormValue("route"), r.FormValue("stage"), rate)
	if err != nil {
		failed(w, err, http.StatusBadRequest)
		return
	}
	defer subscription.Close()
	setHeaders(w, "application/x-ndjson")
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
