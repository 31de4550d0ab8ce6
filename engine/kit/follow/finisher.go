package follow

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

// Finisher is used by a source that finishes (renames, moves or deletes) the files of a Catalogue.
// Its exported methods are safe for concurrent use.
type Finisher struct{ c *Catalogue }

// NewFinisher returns the Finisher of c.
func NewFinisher(c *Catalogue) Finisher { return Finisher{c} }

// Do calls the function finish, which renames and deletes files for a source. Until it has
// returned, the catalogue does not act on missing names, so that these files do not count as
// deleted.
func (n Finisher) Do(finish func() error) error {
	n.c.finishing.Lock()
	defer n.c.finishing.Unlock()
	return finish()
}

// Lookup returns the entry of a partition and the last seen name of its file. over reports that the
// file is finished or lost, or that its inode holds other data. e is nil if no reader has the
// partition.
func (n Finisher) Lookup(id string) (e *Entry, name string, over bool) {
	s := &n.c.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.byID[id]; e == nil || e.refs == 0 {
		return nil, "", false
	}
	return e, e.name, e.phase != known || e.done
}

// Is reports whether info can belong to the file of e.
func (n Finisher) Is(e *Entry, info vfs.Info) bool {
	n.c.ids.mu.Lock()
	defer n.c.ids.mu.Unlock()
	return IsOf(e.id, info)
}

// Sealed returns an error unless every route has read the file to its end. If the file has grown,
// every route must also have saved that the new data is settled. untouched reports whether no
// change of the file is known since the routes have read its end.
func (n Finisher) Sealed(e *Entry) (untouched bool, err error) {
	s := &n.c.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.sealed) < e.refs || len(e.sealed) == 0 {
		return false, errors.New("it is being read")
	}
	untouched = true
	for _, at := range e.sealed {
		if at.r != nil {
			if saved, ok := at.r.saved[e.text]; ok && saved < at.to {
				return false, errors.New("it has grown, and what came later is not settled yet")
			}
		}
		untouched = untouched && at.seen != stat{}
	}
	return untouched, nil
}

// Check returns an error unless size is the position up to which every route has read the file.
// Before it returns an error, it schedules another look at the file.
func (n Finisher) Check(e *Entry, size int64) error {
	s := &n.c.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range e.sealed {
		if at.at != size {
			n.touchedLocked(e)
			return fmt.Errorf("it has %d bytes, %d were read when it counted as finished; the rest is delivered first",
				size, at.at)
		}
	}
	return nil
}

// Touched schedules another look at a file.
func (n Finisher) Touched(e *Entry) {
	n.c.ids.mu.Lock()
	defer n.c.ids.mu.Unlock()
	n.touchedLocked(e)
}

func (n Finisher) touchedLocked(e *Entry) {
	for i := range e.sealed {
		e.sealed[i].seen = stat{}
	}
	n.c.wakes.wake()
}

// Moved notes the name of a file that could not be finished.
func (n Finisher) Moved(e *Entry, name string) { n.c.ids.noteName(e, name) }

// isStillThere reports whether f exists although the last listing lacks it. This happens if the
// source renames f and restores the name during the listing. isStillThere looks only for a file
// that is about to be finished, under the name that its source last gave it. If f exists, it counts
// as listed.
func (n Finisher) isStillThere(f *file) bool {
	c := n.c
	if f.entry == nil || f.state != listed || f.dir == nil || !f.all((*cursor).isSealed) {
		return false
	}
	c.finishing.Lock()
	defer c.finishing.Unlock()
	c.ids.mu.Lock()
	name := f.entry.name
	c.ids.mu.Unlock()
	info, err := f.dir.Stat(name)
	if err != nil || !sameFile(statOf(info), f.info) {
		return false
	}
	f.name, f.scan = name, c.table.scans
	f.update(statOf(info), c.now())
	c.pace.soon()
	return true
}

// Awaiting returns the files that are about to be finished, by name, each with its last stat. A
// listing uses this stat and saves a system call. The stat is at most poll_max old. A finite run
// (Once) accepts older ones, because it reads only the data that was there at its start. In any
// case, the file is checked for changes when it is finished. (These files are not awaiting files,
// which wait for a successor.)
func (n Finisher) Awaiting() map[string]vfs.Info {
	s := &n.c.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]vfs.Info)
	now := n.c.now()
	for _, e := range s.byID {
		if e.phase != known || e.done || len(e.sealed) < e.refs || len(e.sealed) == 0 {
			continue
		}
		seen := e.sealed[0].seen
		if !slices.ContainsFunc(e.sealed, func(at sealing) bool {
			return at.seen != seen || seen == stat{} || now >= at.when+n.c.o.PollMax && (at.r == nil || !at.r.o.Once)
		}) {
			out[e.name] = infoOf(seen)
		}
	}
	return out
}

// MayHold reports whether the catalogue has room for one more handle of a deleted file.
func (n Finisher) MayHold() bool {
	s := &n.c.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.c.watched.openDeleted+len(n.c.watched.pending) < min(maxHeld, n.c.limit.get()/2)
}

// Tell notes that the source has finished the file of e, which is now called name in dir. If dir
// is nil, the file was deleted, and held is an open handle of it, or nil.
func (n Finisher) Tell(e *Entry, dir Dir, name string, held vfs.File) {
	s := &n.c.ids
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done, e.name = true, name
	n.c.watched.pending = append(n.c.watched.pending,
		finishedFile{entry: e, name: name, dir: dir, handle: held})
}
