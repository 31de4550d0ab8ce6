// Package checkpoint keeps what each route has settled, so that a restart resumes there: watermark
// and ranges of each partition, and the place of each ordered lane.
//
// It is an append-only, checksummed log in the state directory, owned by the one [Store] that has
// it open. An Append is one entry, which a crash leaves whole or not at all; the entries that
// survive are a prefix, in order. A snapshot is written at the start and when the log has grown to
// a multiple of what is alive. docs/formats/checkpoint.md draws the bytes.
//
// It decides nothing about what is settled (that is flow/ledger) or when it is saved (the
// pipeline), reads no clock, starts no goroutine, and never replaces a file that it cannot read by
// an empty one. Who opens a Store holds the lock of the state directory.
package checkpoint

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Name is the file in the state directory.
const Name = "checkpoint.log"

// BootMark stands, with the id of a boot of the operating system behind it, at the end of a route's
// key whose marks are worth something only until the next boot: they were saved before the sink had
// synced. See docs/adr/0004-two-layers-of-checkpoint.md.
const BootMark = "@boot="

// ErrClosed is returned by a Store after Close.
var ErrClosed = errors.New("checkpoint: closed")

// Options tune a Store; the zero value is right for use.
type Options struct {
	// Factor is how many times the size of what is alive the log may be before a new one is written; 0
	// means
	// 2. What is not alive is at most 16 MiB in any case.
	Factor int
	// Slack is how many bytes that are not alive the log may have in any case; 0 means 1 MiB.
	Slack int64
	// Warn is told what went wrong without harm: a new log that could not be written while the old one
	// goes on. nil: nobody is. It is called while the log is locked: it must not call the Store.
	Warn func(error)

	version uint16 // what a later program would write; tests of migration
}

// Store is an open checkpoint. Its methods are safe for concurrent use; Append does not wait for a
// Sync that is under way, unless the log is being replaced.
type Store struct {
	dir     vfs.Dir
	options Options

	syncing sync.Mutex // held over a sync or a replacement of the log; taken before writing
	writing sync.Mutex // held over a write, and over its whole replacement: the order of the log is the order of the state
	// What follows is changed with writing held.
	f          vfs.File
	generation uint64
	size       int64  // of the log
	synced     int64  // of that, durable
	retry      int64  // no new log is tried below this length, after one could not be written
	failed     error  // what poisoned the store
	stamp      uint64 // number of this Append
	buf        []byte
	sums       summer
	entry      entry

	mu sync.RWMutex // guards st against readers; changed with writing held too, so that a writer may read without mu
	st *state
}

// Append saves marks and places of a route as one entry: when it returns nil, a kill of the process
// loses none of it, and only a power loss may, until Sync. A lane's place of "" forgets the lane.
// After an error nothing was saved, and Append may be called again, unless the store is poisoned.
// marks are not kept.
func (s *Store) Append(route string, marks []stream.Mark, places map[string]string) error {
	if len(marks) == 0 && len(places) == 0 {
		return nil
	}
	s.writing.Lock()
	err := s.usable()
	if err == nil {
		s.describe(route, marks, places)
		s.buf = appendEntry(append(s.buf[:0], make([]byte, frameHead)...), &s.entry)
		if err = s.write(s.buf); err == nil {
			s.mu.Lock()
			s.st.apply(&s.entry)
			s.mu.Unlock()
		}
	}
	due := err == nil && s.size > s.bound()+s.slack()
	s.trim()
	s.writing.Unlock()
	if err != nil {
		return fmt.Errorf("save %d marks of %q in %s: %w", len(marks), route, s.path(), err)
	}
	if due { // nobody syncs
		return s.Sync()
	}
	return nil
}

// describe puts an Append into s.entry, with the numbers of what the log knows.
func (s *Store) describe(key string, marks []stream.Mark, places map[string]string) {
	s.stamp++
	e := &s.entry
	e.route, e.key, e.marks, e.places = 0, key, e.marks[:0], e.places[:0]
	r := s.st.byKey[key]
	if r != nil {
		e.route = r.number
	}
	for i := range marks {
		op := markOp{mark: marks[i], named: true}
		if r != nil {
			if p := r.byID[marks[i].Part.ID]; p != nil {
				op.part = p.number
				op.named = p.stamp == s.stamp || p.mark.Part.Name != marks[i].Part.Name
				p.stamp = s.stamp
			}
		}
		e.marks = append(e.marks, op)
	}
	if len(places) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		op := placeOp{name: name, place: places[name]}
		if r != nil {
			if l := r.byName[name]; l != nil {
				op.lane = l.number
			}
		}
		e.places = append(e.places, op)
	}
}

// Forget drops partitions of a route, which will not be asked for again. Those that it does not
// know are left out.
func (s *Store) Forget(route string, partitionIDs []string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.usable()
	if err != nil {
		return fmt.Errorf("forget partitions of %q in %s: %w", route, s.path(), err)
	}
	r := s.st.byKey[route]
	if r == nil {
		return nil
	}
	s.stamp++
	f := forget{route: r.number}
	for _, id := range partitionIDs {
		if p := r.byID[id]; p != nil && p.stamp != s.stamp {
			p.stamp = s.stamp
			f.parts = append(f.parts, p.number)
		}
	}
	if len(f.parts) == 0 {
		return nil
	}
	s.buf = appendForget(append(s.buf[:0], make([]byte, frameHead)...), &f)
	if err := s.write(s.buf); err != nil {
		return fmt.Errorf("forget partitions of %q in %s: %w", route, s.path(), err)
	}
	s.mu.Lock()
	s.st.forget(&f)
	s.mu.Unlock()
	s.trim()
	return nil
}

// write appends one frame to the log by one write. What a failed write left is cut off again; if
// even that fails, what the file holds is unknown, and the store is poisoned.
func (s *Store) write(frame []byte) error {
	if err := s.sums.seal(frame, s.generation, s.size); err != nil {
		return err
	}
	n, err := s.f.Write(frame)
	if err == nil {
		s.size += int64(n)
		return nil
	}
	if cut := s.f.Truncate(s.size); cut != nil {
		s.failed = fmt.Errorf("%w; and what it left could not be cut off: %w", err, cut)
	}
	return err
}

// bufferKept is how many bytes of memory are kept from one Append to the next.
const bufferKept = 1 << 20

// trim lets go of the caller's slices, and of memory that one large Append took.
func (s *Store) trim() {
	clear(s.entry.marks)
	if cap(s.buf) > bufferKept {
		s.buf = nil
	}
	if cap(s.entry.marks) > bufferKept/256 {
		s.entry.marks = nil
	}
}

// Sync makes durable what was appended before. An error poisons the store, because nobody knows
// then what the disk has: every later call returns it, and the next Open will tell.
func (s *Store) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.writing.Lock()
	if err := s.usable(); err != nil {
		s.writing.Unlock()
		return err
	}
	if s.size > max(s.bound(), s.retry) {
		err := s.replace()
		if err == nil {
			err = s.failed
			s.writing.Unlock()
			return err
		}
		s.warn(err) // the old log goes on
	}
	f, size := s.f, s.size
	synced := s.synced
	s.writing.Unlock()
	if synced == size {
		return nil
	}
	err := f.Sync()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err != nil {
		s.failed = fmt.Errorf("sync %s: %w", s.path(), err)
		return s.failed
	}
	s.synced = max(s.synced, size)
	return nil
}

// usable needs writing.
func (s *Store) usable() error {
	if s.failed != nil {
		return s.failed
	}
	if s.f == nil {
		return ErrClosed
	}
	return nil
}

func (s *Store) slack() int64 {
	if s.options.Slack > 0 {
		return s.options.Slack
	}
	return 1 << 20
}

// garbageMost is how many bytes that are not alive a log may have, unless Slack is more: nearly a
// million marks.
const garbageMost = 16 << 20

// bound is the length beyond which the log is replaced. It needs writing.
func (s *Store) bound() int64 {
	factor := int64(s.options.Factor)
	if factor <= 0 {
		factor = 2
	}
	return s.st.live + max(s.slack(), min(garbageMost, (factor-1)*s.st.live))
}

func (s *Store) path() string { return filepath.Join(s.dir.Path(), Name) }

// Size returns how many bytes a snapshot of what is alive would take at most, and how many the log
// has.
func (s *Store) Size() (live, file int64) {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.st.live, s.size
}

// Close frees the file. It does not Sync. It may be called again.
func (s *Store) Close() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	s.f = nil
	return err
}

// Failed is what poisoned the store, or ErrClosed: nothing can be saved in it any more. nil: it is
// in order.
func (s *Store) Failed() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.usable()
}

// Marks yields the marks of a route as they are when each is reached, in the order in which the
// partitions were first seen. It holds no lock while it yields.
func (s *Store) Marks(route string) iter.Seq[stream.Mark] {
	return func(yield func(stream.Mark) bool) {
		s.mu.RLock()
		var parts []*part
		if r := s.st.byKey[route]; r != nil {
			parts = r.live()
		}
		s.mu.RUnlock()
		for _, p := range parts {
			s.mu.RLock()
			gone, m := p.gone, clone(&p.mark)
			s.mu.RUnlock()
			if !gone && !yield(m) {
				return
			}
		}
	}
}

// Mark returns the mark of one partition of a route, and false when it has none.
func (s *Store) Mark(route, partitionID string) (stream.Mark, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.st.byKey[route]; r != nil {
		if p := r.byID[partitionID]; p != nil {
			return clone(&p.mark), true
		}
	}
	return stream.Mark{}, false
}

func clone(m *stream.Mark) stream.Mark {
	c := *m
	c.Above = nil
	if len(m.Above) > 0 {
		c.Above = slices.Clone(m.Above)
	}
	return c
}

// Places returns the place of each lane of a route that has one.
func (s *Store) Places(route string) map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st.places(route)
}

// Routes returns the routes that have marks or places, in the order in which they were first seen.
func (s *Store) Routes() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st.keys()
}
