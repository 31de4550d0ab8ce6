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
	// eventsAtOnce is how many notifications are taken at once, those of wakeSpacing: files that grow all the time make one with each
	// write, and to be woken for each costs more than to read what was written.
	eventsAtOnce = 1024
)

// Watch wakes the readers at each change in the directories that dirs lists and that ours calls the source's, until ctx is done or
// stop is closed. It is a hint: polling is the truth, on network mounts the only one. written says that a file's bytes
// changed, not its name.
func (s *Set) Watch(ctx context.Context, stop <-chan struct{}, dirs func() []string, ours func(path string, written bool) bool) error {
	w, err := fsnotify.NewBufferedWatcher(eventsAtOnce)
	if err != nil {
		return err
	}
	defer w.Close()
	watched := make(map[string]bool)
	tick, rest := time.NewTicker(watchAgain), time.NewTimer(0)
	defer tick.Stop()
	defer rest.Stop()
	if err := addWatches(w, watched, dirs()); err != nil && len(watched) == 0 {
		s.log.Debug("no directory can be watched yet", "error", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		case <-tick.C:
			if err := addWatches(w, watched, dirs()); err != nil {
				s.log.Debug("not every directory can be watched", "error", err)
			}
		case e, ok := <-w.Events:
			if !ok {
				return nil
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
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			s.log.Debug("a notification was lost; the files are polled", "error", err)
		}
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

// addWatches watches what is new in dirs and no longer what is not in it. It returns the last error.
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
