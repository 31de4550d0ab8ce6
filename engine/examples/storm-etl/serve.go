package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// handler is the twelve bolts behind HTTP, for the day on the engine (penstock.yaml): each takes records that were parsed and
// enriched, as JSON lines, and answers when they are stored.
func handler(w *world) http.Handler {
	mux := http.NewServeMux()
	for _, b := range w.bolts {
		mux.HandleFunc("POST /"+b.name, func(out http.ResponseWriter, in *http.Request) {
			t, parsed := &tuple{packed: time.Now()}, []any(nil)
			lines := bufio.NewScanner(in.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				var r struct {
					ID          int64
					Host, Class string
					Status      int
				}
				if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
					http.Error(out, err.Error(), http.StatusBadRequest)
					return
				}
				t.rows = append(t.rows, row{id: r.ID})
				parsed = append(parsed, r.ID, r.Host, r.Status, r.Class)
			}
			if err := lines.Err(); err != nil {
				return // the body broke off: it comes again
			}
			if err := b.serve(in.Context(), parsed, t); err != nil {
				http.Error(out, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	return mux
}

// serve makes the day's logs where there are none, and runs the bolts until the process ends.
func serve(s settings) error {
	if s.dir == "" {
		return errors.New("-serve needs -dir, the folder of the databases")
	}
	logs := filepath.Join(s.dir, "logs.db")
	if _, err := os.Stat(logs); errors.Is(err, fs.ErrNotExist) {
		if err := makeLogs(logs, s.rows); err != nil {
			return err
		}
	}
	w, err := openWorld(s.dir, logs, s.rows, s.tuple, s.speed)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: s.serve, Handler: handler(w), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}
