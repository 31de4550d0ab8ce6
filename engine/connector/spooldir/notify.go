package spooldir

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchLocked starts what runs beside the readers: the syncs, and the watcher that wakes readers before their next poll.
// Polling is the truth: a watcher that cannot be had, that misses events or dies costs only time.
func (s *source) watchLocked() {
	stop := make(chan struct{})
	s.stop = stop
	s.h.Go("spool_dir/notify", func(ctx context.Context) error {
		if err := s.notify(ctx, stop); err != nil {
			s.log.Debug("no notifications of changes; the directory is polled", "error", err)
		}
		return nil
	})
	s.h.Go("spool_dir/sync", func(ctx context.Context) error { return s.syncOften(ctx, stop) })
}

// syncOften makes durable what Finish has renamed, until ctx is done or stop is closed.
func (s *source) syncOften(ctx context.Context, stop <-chan struct{}) error {
	tick := time.NewTicker(syncSpacing)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-tick.C:
			if err := s.sync(); err != nil {
				s.log.Warn("after a power loss now, finished files may have their old names again", "error", err)
			}
		}
	}
}

// notify wakes the readers at each change of the directory, until ctx is done or stop is closed.
func (s *source) notify(ctx context.Context, stop <-chan struct{}) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(s.o.Path); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case e, ok := <-w.Events:
			if !ok {
				return nil
			}
			if hidden(filepath.Base(e.Name)) || s.names.done(filepath.Base(e.Name)) && !e.Has(fsnotify.Write) {
				continue
			}
			s.mu.Lock()
			s.wakeLocked()
			s.mu.Unlock()
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			s.log.Debug("a notification was lost; the directory is polled", "error", err)
		}
	}
}

// wakeLocked has every reader list the directory soon.
func (s *source) wakeLocked() {
	for _, r := range s.readers {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}
