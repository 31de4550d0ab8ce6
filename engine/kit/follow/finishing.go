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

// Finisher finishes the files of a Set for its source. Its methods are safe for concurrent use.
type Finisher struct{ s *Set }

// NewFinisher returns the Finisher of s.
func NewFinisher(s *Set) Finisher { return Finisher{s} }

// Do runs finish while no reader notices changed names. A source's Finish does its work in it.
func (n Finisher) Do(finish func() error) error {
	n.s.finishing.Lock()
	defer n.s.finishing.Unlock()
	return finish()
}

// Lookup returns what is known of a partition, the name under which it was seen last, and whether
// it is over: finished, or not the file's any more. It returns nil where no reader knows it.
func (n Finisher) Lookup(id string) (e *Entry, name string, over bool) {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.byID[id]; e == nil {
		return nil, "", false
	}
	return e, e.name, e.dead || e.done
}

// stillThere reports whether f, which the last listing lacks, is about to be finished and has its
// name, or the name under which its source has put it: while it was listed it may have had the
// name of a finished file, and got its own back.
func stillThere(r *Reader, f *file) bool {
	if f.entry == nil || !f.sealed || f.finished || f.dir == nil {
		return false
	}
	r.s.finishing.Lock()
	defer r.s.finishing.Unlock()
	_, name := r.s.foundAt(f.entry)
	info, err := f.dir.Stat(name)
	if err != nil || !sameFile(statOf(info), f.info) {
		return false
	}
	f.name, f.scan = name, r.scans
	f.saw(statOf(info), r.s.now())
	r.pace.soon()
	return true
}

// Sealed is a file that every reader has read to its end.
type Sealed struct {
	Readers   []*Reader // the open ones
	Untouched bool      // no change is known since
}

// Sealed returns an error unless every reader has read the file to its end and, where it grew,
// stored that the rest was settled.
func (n Finisher) Sealed(e *Entry) (Sealed, error) {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.sealed) < e.refs || len(e.sealed) == 0 {
		return Sealed{}, errors.New("it is being read")
	}
	out := Sealed{Untouched: true}
	for _, at := range e.sealed {
		if saved, ok := at.r.saved[e.text]; ok && saved < at.to {
			return Sealed{}, errors.New("it has grown, and what came later is not settled yet")
		}
		out.Untouched = out.Untouched && at.seen != stat{}
		if slices.Contains(s.readers, at.r) {
			out.Readers = append(out.Readers, at.r)
		}
	}
	return out, nil
}

// Check returns an error unless every reader has read the file up to size. Otherwise its readers
// look at it again.
func (n Finisher) Check(e *Entry, size int64) error {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range e.sealed {
		if at.at != size {
			touchedLocked(s, e)
			return fmt.Errorf("it has %d bytes, %d were read when it counted as finished; the rest is delivered first",
				size, at.at)
		}
	}
	return nil
}

// Touched has the readers of a file look at it again.
func (n Finisher) Touched(e *Entry) {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	touchedLocked(s, e)
}

func touchedLocked(s *Set, e *Entry) {
	for i := range e.sealed {
		e.sealed[i].seen = stat{}
	}
	s.wakeLocked()
}

// Moved notes the name of a file that is not finished yet and could not get its own name back.
func (n Finisher) Moved(e *Entry, name string) {
	n.s.renamed(e, name)
}

// Awaiting returns the files that are about to be finished, by name, each as its readers have
// seen it. A listing can leave them out: it was less than poll_max ago, or the run ends with the
// data that was there at its start. Finishing a file notices changes.
func (n Finisher) Awaiting() map[string]vfs.Info {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]vfs.Info)
	now := s.now()
	for _, e := range s.byID {
		if e.dead || e.done || len(e.sealed) < e.refs || len(e.sealed) == 0 {
			continue
		}
		known := e.sealed[0].seen
		if !slices.ContainsFunc(e.sealed, func(at sealing) bool {
			return at.seen != known || known == stat{} || now >= at.when+s.o.PollMax && !at.r.o.Once
		}) {
			out[e.name] = infoOf(known)
		}
	}
	return out
}

// MayHold says whether r may be given one more handle of a deleted file.
func (n Finisher) MayHold(r *Reader) bool {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.held+len(r.news) < min(maxHeld, s.open.get()/2)
}

// Tell notes that a file is finished, and tells the readers where it went: to name beneath dir,
// or, with dir nil, away; held then has a handle for each reader, or nil.
func (n Finisher) Tell(e *Entry, dir Dir, name string, readers []*Reader, held []vfs.File) {
	s := n.s
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done, e.name = true, name
	for i, r := range readers {
		file := finishedFile{entry: e, name: name, dir: dir}
		if dir == nil {
			file.handle = held[i]
		}
		r.news = append(r.news, file)
	}
}
