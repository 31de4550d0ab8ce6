// Package checkpoint stores the progress of each route, from which a restart resumes. The progress
// has two parts: the watermark and the settled ranges of each partition (its mark), and the resume
// token of each worker of a sink that writes in order (its place). A worker's part in the sender is
// called a lane.
//
// The checkpoint is an append-only log with checksums in the state directory. A [Store] is an open
// log. Append writes one entry. After a crash, Open uses an entry completely or not at all. If it
// uses an entry, it also uses all earlier ones.
//
// Open replaces a log by a snapshot of its live contents, unless the log already is one. Later, a
// Store does so each time its log contains too much garbage (see [Options]). See
// docs/formats/checkpoint.md for the format.
//
// The owner of a Store must hold the lock of the state directory. The package never replaces an
// unreadable file by an empty one. It reads no clock and starts no goroutine. Package flow/ledger
// determines the progress, and the pipeline decides when to save it.
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Name is the name of the log in the state directory.
const Name = "checkpoint.log"

// BootMark is a part of some keys of the log. Progress that is saved before the sink has synced its
// data has a key of its own: the key of the route, BootMark, and a boot id of the operating system.
// The progress is valid only until the next boot. See docs/adr/0004-two-layers-of-checkpoint.md.
const BootMark = "@boot="

// ErrClosed means that a Store can save nothing, because it was closed.
var ErrClosed = errors.New("checkpoint: closed")

// Options tune a Store. Zero values select the defaults.
type Options struct {
	// Factor bounds the garbage in the log: the bytes that later entries have replaced or deleted.
	// The other bytes are live. Sync replaces the log by a snapshot when the garbage exceeds
	// Factor-1 times the live bytes. This limit on the garbage is at most 16 MiB and at least
	// Slack. Zero means 2. Example: a log with 3 MiB of live bytes is replaced when it exceeds
	// 6 MiB.
	Factor int
	// Slack is the number of bytes of garbage that the log may always have. Zero means 1 MiB.
	Slack int64
	// Warn, if not nil, is called for harmless errors. For example, a new log could not be written,
	// and the old one stays in use. The Store is locked during the call, so Warn must not call
	// methods of the Store.
	Warn func(error)

	version uint16 // another version to write, for tests of migration
}

// Store is an open checkpoint. Its methods are safe for concurrent use. Append waits for a running
// Sync only if the log is being replaced, or must be replaced.
type Store struct {
	dir     vfs.Dir
	options Options
	version uint16 // of the format that is written

	syncing sync.Mutex // held while the log is synced or replaced; acquired before writing
	// writing is held during each write and during the whole replacement of the log. Entries are
	// therefore written to the file and applied to st in the same order.
	writing sync.Mutex
	// The fields below change only while writing is held.
	f          vfs.File
	generation uint64
	size       int64  // size of the log
	synced     int64  // durable part of size
	retry      int64  // size of the log at which to retry a failed replacement
	failed     error  // the error after which nothing can be saved
	changing   bool   // during Change: entries are applied to st only
	stamp      uint64 // number of this Append or Forget
	buf        []byte
	sums       framelog.Summer
	entry      entry

	// mu guards st. A goroutine that changes st must hold both writing and mu. A goroutine that
	// reads st must hold one of them.
	mu sync.RWMutex
	st *state
}

// Append saves the progress of partitions (marks) and the resume tokens (places) of a route as one
// entry. When it returns nil, the entry survives a kill of the process, but a power loss may lose
// it until Sync. places maps the name of a lane (one worker of the sink) to its resume token. An
// empty token deletes the lane. Append does not retain marks.
//
// After an error, nothing was saved, and Append may be called again. There is one exception: if
// Failed returns an error, it is unknown whether the entry was saved, and no later call can save
// anything.
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
		return fmt.Errorf("save progress of %d partitions of %q in %s: "+
			"%w", len(marks), route, s.path(), err)
	}
	if due { // no other goroutine would replace the log
		return s.Sync()
	}
	return nil
}

// describe fills s.entry with the arguments of an Append. Routes, partitions and lanes that the log
// has already defined get their numbers, so that their keys, ids and names are not stored again.
func (s *Store) describe(key string, marks []stream.Mark, places map[string]string) {
	s.stamp++
	e := &s.entry
	r := s.st.byKey[key]
	if r == nil {
		r = &route{} // new, with the number 0
	}
	e.route, e.key, e.marks, e.places = r.number, key, e.marks[:0], e.places[:0]
	for i := range marks {
		op := markOp{mark: marks[i], named: true}
		if p := r.byID[marks[i].Part.ID]; p != nil {
			op.part = p.number
			op.named = p.stamp == s.stamp || p.mark.Part.Name != marks[i].Part.Name
			p.stamp = s.stamp
		}
		e.marks = append(e.marks, op)
	}
	if len(places) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		op := placeOp{name: name, place: places[name]}
		if l := r.byName[name]; l != nil {
			op.lane = l.number
		}
		e.places = append(e.places, op)
	}
}

// Forget deletes the progress of partitions of a route. It ignores unknown partitions.
func (s *Store) Forget(route string, partitionIDs []string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.usable()
	if err != nil {
		return fmt.Errorf("delete partitions of %q in %s: %w", route, s.path(), err)
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
		return fmt.Errorf("delete partitions of %q in %s: %w", route, s.path(), err)
	}
	s.mu.Lock()
	s.st.forget(&f)
	s.mu.Unlock()
	s.trim()
	return nil
}

// write appends one frame to the log with one write call. If the call fails, write truncates the
// log to its length before the call. If the truncation fails as well, the contents of the file are
// unknown, and nothing can be saved any more (see Failed).
func (s *Store) write(frame []byte) error {
	if s.changing {
		return nil
	}
	if err := s.sums.Seal(frame, s.generation, s.size); err != nil {
		return fmt.Errorf("%w: save the progress of fewer partitions at once", err)
	}
	n, err := s.f.Write(frame)
	if err == nil {
		s.size += int64(n)
		return nil
	}
	if cut := s.f.Truncate(s.size); cut != nil {
		s.failed = fmt.Errorf("%w; and its incomplete entry could not be removed: %w", err, cut)
	}
	return err
}

// bufferKept is the maximum size in bytes of the buffer that is kept between two Appends.
const bufferKept = 1 << 20

// trim releases the references to the caller's marks after an Append, and large buffers.
func (s *Store) trim() {
	clear(s.entry.marks)
	if cap(s.buf) > bufferKept {
		s.buf = nil
	}
	if cap(s.entry.marks) > bufferKept/256 {
		s.entry.marks = nil
	}
}

// Sync makes the entries of earlier Appends durable. If it fails, it is unknown which of the
// entries are on the disk, and nothing can be saved any more (see Failed). The next Open finds out,
// because it checks the file.
func (s *Store) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.writing.Lock()
	if err := s.usable(); err != nil || s.changing {
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
		s.warn(err) // continue with the old log
	}
	f, size, synced := s.f, s.size, s.synced
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

// Change calls the function change, and saves the entries of its Appends and Forgets at once, in a
// new log. So after a crash, the log has all of them or none. After an error, nothing can be saved
// any more (see Failed). No other goroutine may use the Store meanwhile.
func (s *Store) Change(change func() error) error {
	s.changing = true
	err := change()
	s.changing = false
	if err == nil {
		err = s.usable()
	}
	if err == nil {
		err = s.replace()
	}
	if err != nil {
		s.failed = err // st may have a part of the change
	}
	return s.failed
}

// usable returns the error that prevents saving, or nil. The caller must hold s.writing.
func (s *Store) usable() error {
	if s.failed != nil {
		return s.failed
	}
	if s.f == nil {
		return ErrClosed
	}
	return nil
}

func (s *Store) slack() int64 { return cmp.Or(s.options.Slack, 1<<20) }

// garbageMost is the upper limit of the garbage in bytes (see Options.Factor).
const garbageMost = 16 << 20

// bound returns the size that the log may have before it is replaced by a snapshot. The caller must
// hold s.writing.
func (s *Store) bound() int64 {
	factor := int64(cmp.Or(s.options.Factor, 2))
	return s.st.live + max(s.slack(), min(garbageMost, (factor-1)*s.st.live))
}

func (s *Store) path() string { return filepath.Join(s.dir.Path(), Name) }

// Close closes the file without a Sync. It may be called again.
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

// Failed returns the error after which nothing can be saved: the error of a failed sync, of a
// failed write that could not be undone, or ErrClosed. It returns nil if the store is usable.
func (s *Store) Failed() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.usable()
}

// Marks yields the progress of the partitions of a route, in the order in which the partitions
// were first stored. No lock is held while it yields.
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

// Mark returns the progress of a partition of a route. The result is false if there is none.
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
	c.Above = append([]stream.Range(nil), m.Above...) // nil if there are none
	return c
}

// Places returns the resume tokens of a route by lane.
func (s *Store) Places(route string) map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st.places(route)
}

// Routes returns the keys of routes that have progress or resume tokens, in the order in which they
// were first stored. Some of the keys contain BootMark.
func (s *Store) Routes() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var keys []string
	for _, r := range s.st.alive() {
		keys = append(keys, r.key)
	}
	return keys
}
