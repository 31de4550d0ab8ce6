package follow

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

// maxHeld is how many deleted files a reader holds open in case their writers go on.
const maxHeld = 64

// finishedFile tells a reader what its source did.
type finishedFile struct {
	entry  *Entry
	dir    Dir // nil: it was deleted
	name   string
	handle vfs.File // of a deleted file; nil: too many are held
}

// Finishing runs finish while no reader takes notice of changed names. A source's Finish does its work in it.
func (s *Set) Finishing(finish func() error) error {
	s.finishing.Lock()
	defer s.finishing.Unlock()
	return finish()
}

// Lookup returns what is known of a partition, the name under which it was seen last, and whether it is over: finished, or not the
// file's any more. It returns nil where no reader knows it.
func (s *Set) Lookup(id string) (e *Entry, name string, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.byID[id]; e == nil {
		return nil, "", false
	}
	return e, e.name, e.dead || e.done
}

// Settled says whether every reader has read the file to this size and, where it grew, stored that it was settled. It returns the
// readers that are still there.
func (s *Set) Settled(e *Entry, size int64) ([]*Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var readers []*Reader
	for _, at := range e.sealed {
		if at.at != size {
			s.wakeLocked()
			return nil, fmt.Errorf("it has %d bytes, %d were read when it counted as finished; the rest is delivered first", size, at.at)
		}
		if saved, ok := at.r.saved[e.text]; ok && saved < at.to {
			return nil, errors.New("it has grown, and what came later is not settled yet")
		}
		if slices.Contains(s.readers, at.r) {
			readers = append(readers, at.r)
		}
	}
	if len(e.sealed) < e.refs || len(e.sealed) == 0 {
		return nil, errors.New("it is being read")
	}
	return readers, nil
}

// MayHold says whether r may be given one more handle of a deleted file.
func (s *Set) MayHold(r *Reader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.held+len(r.news) < min(maxHeld, s.open.get()/2)
}

// Tell notes that a file is finished, and tells the readers where it went: to name beneath dir, or, with dir nil, away; held
// then has a handle for each reader, or nil.
func (s *Set) Tell(e *Entry, dir Dir, name string, readers []*Reader, held []vfs.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done, e.name = true, name
	for i, r := range readers {
		n := finishedFile{entry: e, name: name, dir: dir}
		if dir == nil {
			n.handle = held[i]
		}
		r.news = append(r.news, n)
	}
}
