package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/vfs"
)

// state is the engine's checkpoint log. One that has failed for good (a sync that did not succeed) is opened anew for the next
// route that starts: what the disk has of it counts then, as after a crash.
type state struct {
	dir  vfs.Dir
	name string // of the directory, for people
	log  *slog.Logger

	mu   sync.Mutex // guards open; held while it is opened
	open *checkpoint.Store
}

// store is the log to start a route with.
func (s *state) store() (*checkpoint.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		failed := s.open.Failed()
		if failed == nil {
			return s.open, nil
		}
		s.log.Warn("the checkpoint is opened anew", "because", failed)
		_ = s.open.Close() // it says again what it died of
		s.open = nil
	}
	store, report, err := checkpoint.Open(s.dir, checkpoint.Options{Warn: func(err error) { s.log.Warn("checkpoint", "error", err) }})
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", s.name, err)
	}
	level := slog.LevelInfo
	if report.Damage != "" {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, report.String())
	s.open = store
	return store, nil
}

func (s *state) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return nil
	}
	return s.open.Close()
}
