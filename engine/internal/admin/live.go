package admin

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	apiEvents  = "/api/v1/events"  // frames as server-sent events
	apiHistory = "/api/v1/history" // time series of a route or worker
	apiLog     = "/api/v1/log"
	apiLevel   = "/api/v1/log-level"
	apiConfig  = "/api/v1/config"

	eventTimeout = 10 * time.Second // maximum time for a client to receive an event
)

func (s *Server) handleLive(pages *http.ServeMux) {
	pages.HandleFunc("GET "+apiEvents, s.events)
	pages.HandleFunc("GET "+apiHistory, s.history)
	pages.Handle("GET "+apiLog, s.guarded(s.log))
	pages.Handle("GET "+apiConfig, s.guarded(s.config))
	pages.Handle("GET "+apiLevel, s.guarded(s.level))
	pages.Handle("POST "+apiLevel, s.guarded(s.setLevel))
}

// guarded refuses all requests if the server has no token. Otherwise any user of the machine could
// read records and log lines. If the server has a token, requests are passed to next.
func (s *Server) guarded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.o.Token == "" {
			reply(w, http.StatusForbidden,
				"records, logs and options are shown only with a token: "+
					"set admin.token in the config\n")
			return
		}
		next(w, r)
	})
}

// events sends a frame each second until the client disconnects or the server ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	frames, cancel, err := s.hub.Subscribe()
	if err != nil {
		reply(w, http.StatusServiceUnavailable, err.Error()+"\n")
		return
	}
	defer cancel()
	setHeaders(w, "text/event-stream")
	out := http.NewResponseController(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case frame, more := <-frames:
			if !more {
				return
			}
			_ = out.SetWriteDeadline(time.Now().Add(eventTimeout)) // tests have no deadlines
			for _, part := range [][]byte{[]byte("data: "), frame, []byte("\n\n")} {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
			if out.Flush() != nil {
				return
			}
		}
	}
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, s.hub.History(r.FormValue("route"), r.FormValue("worker")))
}

// log responds with the log lines that follow the line with the given number.
func (s *Server) log(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if err != nil && r.FormValue("after") != "" {
		reply(w, http.StatusBadRequest, "after is not the number of a line\n")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"lines": s.o.LogTail.After(after)})
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, string(s.o.Config()))
}

// logLevel is the body of requests and responses for the log level.
type logLevel struct {
	Level string `json:"level"` // debug, info, warn or error
}

func (s *Server) level(w http.ResponseWriter, _ *http.Request) {
	if s.o.LogLevel == nil {
		reply(w, http.StatusNotFound, "this program has no adjustable log level\n")
		return
	}
	writeJSON(w, http.StatusOK, logLevel{strings.ToLower(s.o.LogLevel.Level().String())})
}

func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	if s.o.LogLevel == nil {
		reply(w, http.StatusNotFound, "this program has no adjustable log level\n")
		return
	}
	var in logLevel
	if !readJSON(w, r, &in) {
		return
	}
	level, ok := levels[in.Level]
	if !ok {
		reply(w, http.StatusBadRequest, "the level is debug, info, warn or error, not "+
			strconv.Quote(in.Level)+"\n")
		return
	}
	s.o.LogLevel.Set(level)
	s.o.Log.Info("log level changed", "level", in.Level)
	writeJSON(w, http.StatusOK, in)
}
