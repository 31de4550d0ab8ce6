package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

const (
	apiReload = "/api/v1/reload" // reloads the configuration

	// reloadTimeout is the maximum time for which a reload waits for removed routes to drain. After
	// it, routes that are still draining are stopped.
	reloadTimeout = 10 * time.Minute
)

// reload reloads the configuration. When this is done, it responds with 200, or with 422 and the
// reason. The reload continues if the client disconnects.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	// Connections in tests have no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTimeout + answer))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reloadTimeout)
	defer cancel()
	begun := time.Now()
	err := s.o.Reload(ctx)
	result := status.Reload{At: begun.UTC(), Seconds: time.Since(begun).Seconds(), OK: err == nil}
	code := http.StatusOK
	if err != nil {
		result.Error = stream.MaskURLs(err.Error())
		code = http.StatusUnprocessableEntity
	}
	if last := s.o.Status().Reload; last != nil {
		result.Count, result.Failed = last.Count, last.Failed
	}
	writeJSON(w, code, result)
}

// writeJSON writes v as the response.
func writeJSON(w http.ResponseWriter, code int, v any) {
	setHeaders(w, "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client may have disconnected
}
