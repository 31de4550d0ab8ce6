package spooldir

import (
	"context"
	"path/filepath"
	"time"
)

// watchLocked starts a goroutine that makes renames durable, and a watcher that wakes the readers
// when files change. The readers also poll; without a working watcher they notice changes later. If
// once is set, there is no watcher, because the readers only read the files that exist at the
// start.
func (s *source) watchLocked(once bool) {
	stop := make(chan struct{})
	s.stop = stop
	s.h.Go("spool_dir/sync", func(ctx context.Context) error { return s.syncOften(ctx, stop) })
	if once {
		return
	}
	s.h.Go("spool_dir/notify", func(ctx context.Context) error {
		dirs := func() []string { return []string{s.o.Path} }
		ours := func(path string, written bool) bool {
			base := filepath.Base(path)
			return !hidden(base) && (written || !s.names.done(base))
		}
		if err := s.set.Watch(ctx, stop, dirs, ours); err != nil {
			s.log.Debug("no notifications of changes; the directory is polled", "error", err)
		}
		return nil
	})
}

// syncOften makes the renames of Finish durable at intervals, until ctx is done or stop is closed.
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
