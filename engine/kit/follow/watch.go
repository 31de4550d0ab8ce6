package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxWatches is the maximum number of watched directories. The others are only polled.
	maxWatches = 512
	// watchAgain is how often the list of directories is updated.
	watchAgain = 5 * time.Second
	// eventsAtOnce is the size of the buffer for notifications. They collect there during
	// wakeSpacing, the minimum wait between two listings. Constantly growing files cause a
	// notification per write, and a wake-up for each costs more than reading the written bytes.
	eventsAtOnce = 1024
	// busyFor is the time after which watching stops if every listing in that time has found bytes
	// to read for every reader. Readers that always find data list the files at regular intervals
	// anyway. Notifications would only cost time, in the writer and in the reader.
	busyFor = time.Second
)

// Watch wakes the readers at each change in the directories that dirs returns. ours reports whether
// the changed path belongs to the source. Its argument written is true if bytes of the file
// changed, and otherwise false, for example if a name changed. Watch returns when ctx is done or
// stop is closed, or with an error if the system does not allow another watcher. Nothing is watched
// while all readers are busy.
//
// Notifications only save time: polling finds every change as well, and on network mounts it is the
// only way.
func (c *Catalogue) Watch(
	ctx context.Context, stop <-chan struct{}, dirs func() []string, ours func(path string, written bool) bool,
) error {
	for again := false; ; again = true {
		if busy, err := watchUntilBusy(ctx, c, stop, dirs, ours, again); !busy {
			return err
		}
		for isBusy(c) {
			select {
			case <-c.idle:
			case <-ctx.Done():
				return nil
			case <-stop:
				return nil
			}
		}
	}
}

// watchUntilBusy is like Watch, but also returns when all readers are busy. busy reports that the
// readers were the reason for the return. again is set if an earlier call has returned for this
// reason. Changes may have been missed since then, and the readers therefore list the files once.
func watchUntilBusy(
	ctx context.Context, c *Catalogue, stop <-chan struct{}, dirs func() []string,
	ours func(path string, written bool) bool, again bool,
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
		c.log.Debug("no directory can be watched yet", "error", err)
	}
	if again {
		c.wakes.wake()
	}
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-stop:
			return false, nil
		case <-tick.C:
			if err := addWatches(w, watched, dirs()); err != nil {
				c.log.Debug("not every directory can be watched", "error", err)
			}
		case e, ok := <-w.Events:
			if !ok {
				return false, nil
			}
			if !changes(e, w.Events, watched, ours) {
				continue
			}
			c.wakes.wake()
			rest.Reset(wakeSpacing)
			select {
			case <-rest.C: // the readers list no sooner; later notifications wake them again
			case <-ctx.Done():
			case <-stop:
			}
			if isBusy(c) {
				return true, nil
			}
		case err, ok := <-w.Errors:
			if !ok {
				return false, nil
			}
			c.log.Debug("a notification was lost; the files are polled", "error", err)
		}
	}
}

// wakes are the channels by which a notification asks for a listing. Its methods are safe for
// concurrent use.
type wakes struct {
	mu   sync.Mutex // guards subs
	subs []chan struct{}
	run  chan struct{} // of the catalogue's own goroutine
}

func (w *wakes) add(sub chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subs = append(w.subs, sub)
}

func (w *wakes) drop(sub chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subs = slices.DeleteFunc(w.subs, func(o chan struct{}) bool { return o == sub })
}

func (w *wakes) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sub := range w.subs {
		signal(sub)
	}
	signal(w.run)
}

// signal sends to a channel of capacity one, unless a signal is already waiting there.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// isBusy reports whether all readers have found something to be read in each listing for at least
// the time busyFor.
func isBusy(c *Catalogue) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for _, r := range c.readers {
		if r.busy == 0 || now-r.busy < busyFor {
			return false
		}
	}
	return len(c.readers) > 0
}

// noteBusy notes whether a listing has found something for r to read.
func noteBusy(c *Catalogue, r *Reader, something bool) {
	switch {
	case !something:
		r.busy = 0
		signal(c.idle)
	case r.busy == 0:
		r.busy = max(c.now(), 1)
	}
}

// changes reports whether e, or an event queued behind it, belongs to the source. The channel more
// has the queued events, and changes removes them.
func changes(e fsnotify.Event, more <-chan fsnotify.Event, watched map[string]bool,
	ours func(path string, written bool) bool) bool {
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

// addWatches adds watches for new entries of dirs and removes the watches of directories that are
// no longer in dirs. It returns the last error.
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
