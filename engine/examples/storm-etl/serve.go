package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// handler serves the twelve bolts over HTTP, so that the engine (penstock.yaml) can deliver the
// same logs to them. A bolt accepts parsed and enriched records as JSON lines. It responds when it
// has stored them. It stores requests with the same Idempotency-Key once.
func handler(w *environment) http.Handler {
	mux := http.NewServeMux()
	had := &keys{of: make(map[string]*answered)}
	for _, b := range w.bolts {
		mux.HandleFunc("POST /"+b.name, func(out http.ResponseWriter, in *http.Request) {
			before, first := had.take(in.Header.Get("Idempotency-Key"))
			if !first { // a slow batch is sent to another bolt as well
				<-before.done
				if before.err != nil {
					http.Error(out, before.err.Error(), http.StatusServiceUnavailable)
				}
				return
			}
			before.err = errBroken
			defer had.end(in.Header.Get("Idempotency-Key"), before)
			t, parsed := &tuple{packed: time.Now()}, []any(nil)
			for lines := json.NewDecoder(in.Body); ; {
				var r struct {
					ID          int64
					Host, Class string
					Status      int
				}
				if err := lines.Decode(&r); err == io.EOF {
					break
				} else if err != nil {
					http.Error(out, err.Error(), http.StatusBadRequest)
					return
				}
				t.rows = append(t.rows, row{id: r.ID})
				parsed = append(parsed, r.ID, r.Host, r.Status, r.Class)
			}
			if before.err = b.serve(in.Context(), parsed, t); before.err != nil {
				http.Error(out, before.err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	return mux
}

var errBroken = errors.New("the batch did not arrive whole")

// keys has the Idempotency-Keys of stored and pending batches. With them, a batch that arrives
// several times is stored only once.
type keys struct {
	mu sync.Mutex // guards of
	of map[string]*answered
}

type answered struct {
	done chan struct{} // closed when err is set
	err  error
}

// take returns the entry of a batch. If first is true, the caller must process the batch. Otherwise
// another request has begun to process it: when a.done is closed, a.err is the result. A batch
// without a key equals no other batch.
func (k *keys) take(key string) (a *answered, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.of[key]; a != nil {
		return a, false
	}
	a = &answered{done: make(chan struct{})}
	if key != "" {
		k.of[key] = a
	}
	return a, true
}

// end wakes the requests that wait for the batch. If the batch was not stored, end deletes its key,
// so that a repeated request processes it again.
func (k *keys) end(key string, a *answered) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a.err != nil {
		delete(k.of, key)
	}
	close(a.done)
}

// serve creates the logs of the day if they are missing, and then serves the bolts until the
// process ends.
func serve(s settings) error {
	if s.dir == "" {
		return errors.New("-serve needs -dir, the folder of the databases")
	}
	logs := filepath.Join(s.dir, "logs.db")
	if _, err := os.Stat(logs); errors.Is(err, os.ErrNotExist) {
		if err := makeLogs(logs, s.rows); err != nil {
			return err
		}
	}
	w, err := openEnvironment(s.dir, logs, s.rows, s.tuple, s.speed)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: s.serve, Handler: handler(w), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}
