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
)

// Watch wakes the readers at each change in the directories that dirs lists and that ours calls the source's, until ctx is done or
// stop is closed. It is a hint: polling is the truth, on network mounts the only one. written says that a file's bytes
// changed, not its name.
func (s *Set) Watch(ctx context.Context, stop <-chan struct{}, dirs func() []string, ours func(path string, written bool) bool) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	watched := make(map[string]bool)
	tick := time.NewTicker(watchAgain)
	defer tick.Stop()
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
			if e.Has(fsnotify.Remove) {
				delete(watched, e.Name) // if it is a directory, its watch went with it
			}
			if ours(e.Name, e.Has(fsnotify.Write)) {
				s.Wake()
			}
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			s.log.Debug("a notification was lost; the files are polled", "error", err)
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
