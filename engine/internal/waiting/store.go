// Package waiting stores the ranges of a route that wait a long time for their next attempt. It
// stores positions, due times and histories of ranges, in about 100 bytes of memory each (plus the
// keys in their positions). It does not store their data, which the source reads again.
//
// A [Store] has an index in memory, and a journal of changes in segment files. See
// docs/formats/waiting.md. Once a range is durable in the journal, the checkpoint counts it as
// settled, as if it were delivered. So a million waiting batches leave no gaps in the checkpoint.
// This makes the journal as important as the checkpoint: Open returns an error if the journal is
// damaged.
//
// Package flow/control decides which batches wait, and for how long.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Options of a Store.
type Options struct {
	// Boot is the boot id of the operating system, or "" if unknown. SinceBoot returns the time
	// since that boot, including the time when the system was suspended. If the process restarts
	// without a restart of the system, due times are still measured by SinceBoot. After a restart
	// of the system, they are measured by the wall clock.
	Boot      string
	SinceBoot func() time.Duration
}

// Range is a range of a partition that waits for a retry.
type Range struct {
	Part    stream.Partition
	Range   stream.Range
	Records int64
	Bytes   int64
}

// Store has the waiting ranges of one route. It is safe for concurrent use.
type Store struct {
	o     Options
	start time.Time

	writing sync.Mutex // guards j; acquired before mu
	j       journal

	mu       sync.Mutex // guards the fields below
	x        *index
	unsynced []uint32      // entries written to the journal since the last sync
	batch    uint32        // number of the last batch
	fewest   bool          // Next returns the suspect with the fewest failures next
	closed   bool          // Next returns io.EOF
	changed  chan struct{} // closed by Stop, and when a range is added that may be due first
}

// Exists reports whether dir contains files of a store.
func Exists(dir vfs.Dir) (bool, error) {
	j := journal{dir: dir}
	err := j.list()
	return len(j.segments) > 0, err
}

// Remove removes all files of a store.
func Remove(dir vfs.Dir) error {
	j := journal{dir: dir}
	if err := j.list(); err != nil {
		return err
	}
	for len(j.segments) > 0 {
		if err := j.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// Open opens the store in dir, and makes the journal durable. All ranges in the journal wait again.
// Open returns an error if the journal is damaged, or if a newer version of the program wrote it.
// The Store does not close dir.
func Open(dir vfs.Dir, o Options) (*Store, error) {
	s := &Store{o: o, start: time.Now(), j: journal{dir: dir}, x: newIndex(),
		changed: make(chan struct{})}
	if err := s.j.list(); err != nil {
		return nil, err
	}
	err := s.j.checkGaps() // first, since read may remove the last segment
	for i := 0; err == nil && i < len(s.j.segments); i++ {
		boot := ""
		err = s.j.read(i, func(r *record, parts []stream.Partition) error {
			s.replay(r, parts, &boot)
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("a segment vanished while it was read")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("batches that wait for a retry: %w: put a copy of the file back, "+
			"or accept that these batches are lost and remove the directory %s", err, dir.Path())
	}
	if err := dir.Sync(); err != nil {
		return nil, fmt.Errorf("sync %s: %w", dir.Path(), err)
	}
	for n, p := range s.x.parts {
		for i := range p.order.all {
			s.x.at(i).set(isSaved|isHanded, true)
			s.x.hold(i)
		}
		s.x.release(uint32(n))
	}
	s.x.settle, s.x.dirty = nil, nil
	return s, nil
}

// replay applies one record of the journal.
func (s *Store) replay(r *record, parts []stream.Partition, boot *string) {
	switch r.kind {
	case kindBoot:
		*boot = r.boot
	case kindDone:
		s.x.cutOut(s.x.partition(parts[r.n]), r.r, 0, false)
	case kindWait:
		e := &r.entry
		at := s.dueOf(r.due, *boot, long(e.prev))
		s.x.put(s.x.partition(parts[r.n]), r.r, e.records, e.bytes, e.batch, at, e.history(),
			isNoted)
		s.batch = max(s.batch, e.batch)
		s.j.waits++
		s.j.waitBytes += int64(40 + len(r.r.From.Key) + len(r.r.To.Key))
	}
}

// dueOf converts a due time in the journal to the clock of the store. boot is the boot id that was
// saved with it. wait is the original wait. The result is at most wait from now, even if the wall
// clock was set back.
func (s *Store) dueOf(d due, boot string, wait time.Duration) time.Duration {
	left := time.Duration(d.wall - time.Now().UnixNano())
	if s.o.Boot != "" && boot == s.o.Boot && d.boot != 0 {
		left = time.Duration(d.boot) - s.o.SinceBoot()
	}
	return s.now() + min(max(left, 0), wait)
}

func (s *Store) now() time.Duration { return time.Since(s.start) }

// Note notes that ranges wait, while the sender keeps their data in memory.
func (s *Store) Note(ranges []Range, w flow.Wait) { s.put(ranges, w, isNoted) }

// Hold notes that ranges wait, and that the sender has released their data. When the ranges are
// due, Next returns them.
func (s *Store) Hold(ranges []Range, w flow.Wait) { s.put(ranges, w, isHeld) }

func (s *Store) put(ranges []Range, w flow.Wait, ph phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.now() + w.After
	s.batch++
	for i := range ranges {
		r := &ranges[i]
		n := s.x.partition(r.Part)
		s.x.dirty = append(s.x.dirty,
			s.x.put(n, r.Range, clip(r.Records), clip(r.Bytes), s.batch, at, w.History, ph))
	}
	if ph == isHeld {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func clip(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }

// Settled removes a range, or a part of one, from the store, because the range no longer waits.
// records is the number of records in the removed range.
func (s *Store) Settled(partitionID string, r stream.Range, records int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.x.byID[partitionID]; ok {
		s.x.cutOut(n, r, records, true)
	}
}

// Next waits until ranges are due, and returns due ranges of one batch and the history of the
// batch's attempts. The result has at most the given numbers of records and bytes, or only one
// range. If suspect is set, Next returns only ranges of suspects (batches that fail at workers that
// deliver other batches). If it is not set, Next returns only ranges of other batches. The store
// keeps the returned ranges until Settled is called. After Stop, Next returns io.EOF.
func (s *Store) Next(ctx context.Context, suspect bool, records,
	bytes int64) ([]Range, flow.History, error) {
	for {
		s.mu.Lock()
		out := s.takeDue(suspect, records, bytes)
		at, ok := s.x.nextDue(suspect)
		closed, changed := s.closed, s.changed
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			s.giveBack(out)
			return nil, flow.History{}, context.Cause(ctx)
		case closed:
			s.giveBack(out)
			return nil, flow.History{}, io.EOF
		case len(out) > 0:
			return s.describe(out)
		}
		timer := time.NewTimer(max(0, at-s.now()))
		if !ok {
			timer.Stop() // only a change or the end of ctx wakes Next
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// takeDue takes the due ranges of the next batch, up to the given numbers of records and bytes. The
// batch is a suspect if suspect is set, and otherwise not. The caller holds s.mu.
func (s *Store) takeDue(suspect bool, records, bytes int64) []uint32 {
	if s.closed {
		return nil
	}
	out := s.x.takeDue(suspect, s.fewest, s.now(), records, bytes)
	if suspect && len(out) > 0 {
		s.fewest = !s.fewest
	}
	return out
}

func (s *Store) giveBack(out []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range out {
		s.x.hold(i)
	}
}

func (s *Store) describe(out []uint32) (ranges []Range, h flow.History, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range out {
		e := s.x.at(i)
		ranges = append(ranges, Range{
			Part: s.x.parts[e.part].part, Range: e.rangeOf(), Records: int64(e.records),
			Bytes: int64(e.bytes),
		})
		h = e.history()
	}
	return ranges, h, nil
}

// Stop makes the present and all later calls of Next return io.EOF.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Save writes the changes to the journal. They then survive a kill of the process. After an
// error, Save may be called again.
func (s *Store) Save() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.save()
}

func (s *Store) save() error {
	s.mu.Lock()
	idle := len(s.x.dirty)+len(s.x.settle) == 0
	s.mu.Unlock()
	if idle {
		return s.j.failed
	}
	if err := s.j.ready(); err != nil {
		return err
	}
	s.mu.Lock()
	dirty, settle := s.x.dirty, s.x.settle
	s.x.dirty, s.x.settle = nil, nil
	frame := s.encode(dirty, settle)
	s.mu.Unlock()
	if len(frame) == frameHead {
		return nil
	}
	err := s.j.write(frame)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		for _, i := range dirty {
			s.x.at(i).set(isSaved, false)
		}
		s.x.dirty, s.x.settle = append(dirty, s.x.dirty...), append(settle, s.x.settle...)
		return err
	}
	s.unsynced = append(s.unsynced, dirty...)
	for i := range settle {
		n := settle[i].part
		s.x.parts[n].unwritten--
		if s.x.release(n) {
			delete(s.j.numbers, n)
		}
	}
	return nil
}

// encode encodes the changes as a frame (one write in the journal). A reader applies the changes in
// order, and a part of a removed range may wait again. So the removed ranges come first. The caller
// holds s.mu.
func (s *Store) encode(dirty []uint32, settle []done) []byte {
	frame := make([]byte, frameHead, frameHead+64*(len(dirty)+len(settle)))
	for i := range settle {
		frame = s.name(frame, settle[i].part)
		frame = appendDone(frame, s.j.numbers[settle[i].part], settle[i].r)
	}
	wall, boot, now := time.Now().UnixNano(), time.Duration(0), s.now()
	if s.o.Boot != "" {
		boot = s.o.SinceBoot()
	}
	for _, i := range dirty {
		e := s.x.at(i)
		if e.phase == isFree || e.has(isSaved) {
			continue
		}
		frame = s.name(frame, e.part)
		if s.o.Boot != "" && s.j.boot != s.o.Boot {
			frame, s.j.boot = appendBoot(frame, s.o.Boot), s.o.Boot
		}
		left := time.Duration(e.due) - now
		d := due{wall: wall + int64(left)}
		if s.o.Boot != "" {
			d.boot = int64(boot + left)
		}
		before := len(frame)
		frame = appendWait(frame, s.j.numbers[e.part], e, d)
		s.j.waits++
		s.j.waitBytes += int64(len(frame) - before)
		e.set(isSaved, true)
	}
	return frame
}

// name appends a record that defines a partition, unless the segment has already defined it.
func (s *Store) name(frame []byte, n uint32) []byte {
	if _, ok := s.j.numbers[n]; !ok {
		s.j.numbers[n] = s.j.named
		s.j.named++
		frame = appendPart(frame, s.x.parts[n].part)
	}
	return frame
}

// Sync writes the changes and makes them durable. It returns the ranges that have become durable
// and which the checkpoint may now count as settled. After a failed sync, all later calls fail; see
// Failed.
func (s *Store) Sync() (handed []Range, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.save(); err != nil {
		return nil, err
	}
	clean := s.j.wasteful(s.entries())
	if clean {
		if err := s.moveOldest(); err != nil {
			return nil, err
		}
	}
	if err := s.j.sync(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	written := s.unsynced
	s.unsynced = nil
	for _, i := range written {
		e := s.x.at(i)
		if e.phase == isFree || e.has(isHanded) || !e.has(isSaved) {
			continue
		}
		e.set(isHanded, true)
		handed = append(handed, Range{Part: s.x.parts[e.part].part, Range: e.rangeOf()})
	}
	s.mu.Unlock()
	if clean {
		return handed, s.j.dropOldest()
	}
	return handed, nil
}

func (s *Store) entries() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.x.all.entries
}

// moveOldest appends the live entries of the oldest segment to the last one, so that the oldest
// can be removed.
func (s *Store) moveOldest() error {
	err := s.j.read(0, func(r *record, parts []stream.Partition) error {
		if r.kind != kindWait {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		n, ok := s.x.byID[parts[r.n].ID]
		if !ok {
			return nil
		}
		if i, ok := s.x.exact(s.x.parts[n], r.r); ok && s.x.at(i).has(isSaved) {
			s.x.at(i).set(isSaved, false)
			s.x.dirty = append(s.x.dirty, i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.save()
}

// Drop removes all ranges of the given partitions. Without arguments, it removes the ranges of all
// partitions. It returns the number of records in the removed ranges.
func (s *Store) Drop(partitionIDs ...string) (records int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.x.all.records
	for n, p := range s.x.parts {
		if p == nil || len(partitionIDs) > 0 && !slices.Contains(partitionIDs, p.part.ID) {
			continue
		}
		for i, ok := p.order.get(cursor{}); ok; i, ok = p.order.get(cursor{}) {
			s.x.settled(uint32(n), s.x.at(i).rangeOf())
			s.x.kill(i)
		}
	}
	return before - s.x.all.records
}

// Failed returns the error after which nothing can be saved, or nil.
func (s *Store) Failed() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.j.failed
}

// Held returns the numbers of waiting ranges, and of the records and bytes in them. It omits ranges
// with data in the sender's memory: those of Note, and those that Next has returned.
func (s *Store) Held() (ranges, records, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.x.held.entries, s.x.held.records, s.x.held.bytes
}

// First returns the start of the first waiting range of a partition. It returns false if there is
// none.
func (s *Store) First(partitionID string) (at stream.Position, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.x.first(partitionID)
}

// Ranges returns the waiting ranges of a partition in ascending order.
func (s *Store) Ranges(partitionID string) []stream.Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.x.ranges(partitionID)
}

// Close closes the files. It does not save the changes.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.j.close()
}
