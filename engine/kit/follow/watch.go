package follow

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxWatches is how many directories are watched at most; the others are polled alone.
	maxWatches = 512
	// watchAgain is how often the list of directories is asked for anew.
	watchAgain = 5 * time.Second
	// eventsAtOnce is how many notifications are taken at once, those of wakeSpacing: files that grow
	// all the time make one with each write, and to be woken for each costs more than to read what was
	// written.
	eventsAtOnce = 1024
	// busyFor is how long each listing has to find something to be read before nothing is watched any
	// more: who reads all the time lists by the clock, and a notification of each write would cost the
	// writer and the reader something, and tell nobody anything.
	busyFor = time.Second
)

// Watch wakes the readers at each change in the directories that dirs lists and that ours calls the
// source's, until ctx is done or stop is closed. It is a hint: polling is the truth, on network
// mounts the only one. written says that a file's bytes changed, not its name. Nothing is watched
// while all readers are busy.
func (s *Set) Watch(ctx context.Context, stop <-chan struct{}, dirs func() []string, ours func(path string, written bool) bool) error {
	for again := false; ; again = true {
		if busy, err := s.watch(ctx, stop, dirs, ours, again); !busy {
			return err
		}
		for s.busy() {
			select {
			case <-s.idle:
			case <-ctx.Done():
				return nil
			case <-stop:
				return nil
			}
		}
	}
}

// watch is Watch until all readers are busy, which it returns. again: they have been since an
// earlier call, and what has happened just now is not known.
func (s *Set) watch(
	ctx context.Context, stop <-chan struct{}, dirs func() []string, ours func(path string, written bool) bool, again bool,
) (busy bool, err error) {
	w, err := fsnotify.NewBufferedWatcher(eventsAtOnce)
	if err != nil {
		return false, err
	}
	defer w.Close()
	watched := make(map[string]bool)
	tick, rest := time.NewTicker(watchAgain), time.NewTimer(0)
	defer tick.Stop()
	defer rest.Stop()
	if err := addWatches(w, watched, dirs()); err != nil && len(watched) == 0 {
		s.log.Debug("no directory can be watched yet", "error", err)
	}
	if again {
		s.Wake()
	}
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-stop:
			return false, nil
		case <-tick.C:
			if err := addWatches(w, watched, dirs()); err != nil {
				s.log.Debug("not every directory can be watched", "error", err)
			}
		case e, ok := <-w.Events:
			if !ok {
				return false, nil
			}
			if !changes(e, w.Events, watched, ours) {
				continue
			}
			s.Wake()
			rest.Reset(wakeSpacing)
			select {
			case <-rest.C: // the readers list no sooner, either; what comes meanwhile wakes them again
			case <-ctx.Done():
			case <-stop:
			}
			if s.busy() {
				return true, nil
			}
		case err, ok := <-w.Errors:
			if !ok {
				return false, nil
			}
			s.log.Debug("a notification was lost; the files are polled", "error", err)
		}
	}
}

// busy says whether all readers have found something to be read in each listing for long.
func (s *Set) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, r := range s.readers {
		if r.busy == 0 || now-r.busy < busyFor {
			return false
		}
	}
	return len(s.readers) > 0
}

// listed notes whether a listing of r's has found something to be read.
func (s *Set) listed(r *Reader, something bool) {
	s.mu.Lock()
	switch {
	case !something:
		r.busy = 0
	case r.busy == 0:
		r.busy = max(s.now(), 1)
	}
	s.mu.Unlock()
	if !something {
		signal(s.idle)
	}
}

// changes says whether an event, or one of those that wait behind it, is the source's.
func changes(e fsnotify.Event, more <-chan fsnotify.Event, watched map[string]bool, ours func(path string, written bool) bool) bool {
	for found := false; ; {
		if e.Has(fsnotify.Remove) {
			delete(watched, e.Name) // if it is a directory, its watch went with it
		}
		found = ours(e.Name, e.Has(fsnotify.Write)) || found
		ok := false
		select {
		case e, ok = <-more:
		default:
		}
		if !ok {
			return found
		}
	}
}

// addWatches watches what is new in dirs and no longer what is not in it. It returns the last
// error.
func addWatches(w *fsnotify.Watcher, watched map[string]bool, dirs []string) (err error) {
	wanted := make(map[string]bool, len(dirs))
	for _, dir := range dirs[:min(len(dirs), maxWatches)] {
		wanted[dir] = true
		if !watched[dir] {
			if e := w.Add(dir); e != nil {
				err = e
				continue
			}
			watched[dir] = true
		}
	}
	for dir := range watched {
		if !wanted[dir] {
			delete(watched, dir)
			_ = w.Remove(dir) // it may be gone already
		}
	}
	return err
}
