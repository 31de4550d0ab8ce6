package follow

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Entry is the identity of a file, for all routes. Its fields are guarded by identities.mu, but for file.
type Entry struct {
	id     fileid.ID // with the inode in which the data lies now
	given  fileid.Key
	others []fileid.ID // the same with other inodes, where routes have stored that the data lies
	text   string      // of the id that was given; the partition's id
	name   string      // beneath its directory, where it was seen last
	phase  phase
	done   bool // renamed, moved or deleted by its source; name is where it went
	refs   int  // cursors that have it as their partition
	sealed []sealing
	file   *file // that holds its data or waits for it, nil: none was met; guarded by Catalogue.mu
}

// phase is what an identity is good for.
type phase uint8

const (
	known     phase = iota // a file with this inode and head is the one
	displaced              // other data stands in the inode; only its bytes tell where its data lies now
	over                   // it is read to its end or lost: no file is taken for it again
)

// sealing is where one route has sealed a file.
type sealing struct {
	r  *Reader // nil: it was closed
	at int64   // bytes of the file
	to int64   // where its positions end: the same, unless it is compressed

	seen stat          // as the file was then; zero if it was changed since
	when time.Duration // of the last look at it
}

// generation is the lowest one that no id of an inode and birth has had.
type generation struct{ birth, next int64 }

// identities are the ids of a source's files, once for all routes. Its methods are safe for concurrent use.
type identities struct {
	mu    sync.Mutex
	byID  map[string]*Entry
	byKey map[fileid.Key][]*Entry // those that are known, by where their data lies
	gens  map[fileid.Key]generation
	past  map[string]bool // the ids of those that are over, until their progress is dropped
}

func newIdentities() identities {
	return identities{
		byID: make(map[string]*Entry), byKey: make(map[fileid.Key][]*Entry),
		gens: make(map[fileid.Key]generation), past: make(map[string]bool),
	}
}

// byGen orders the identities of an inode, the newest first.
func byGen(a, b *Entry) int {
	return cmp.Or(cmp.Compare(b.id.Gen, a.id.Gen), strings.Compare(a.text, b.text))
}

// find returns the identities that a file can be known by, the newest first.
func (s *identities) find(f fileid.File) []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Entry
	for _, e := range s.byKey[f.Key()] {
		if e.liesAt(func(id fileid.ID) bool { return id.Match(f) }) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, byGen)
	return out
}

// at returns the known identities of an inode that a stat can be of, in order.
func (s *identities) at(i stat) []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Entry
	for _, e := range s.byKey[keyOf(i)] {
		if e.liesAt(func(id fileid.ID) bool { return isOf(id, i) }) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, byGen)
	return out
}

// give gives a file a new id.
func (s *identities) give(f fileid.File, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	gen := int64(0)
	for _, e := range s.byKey[f.Key()] {
		if e.id.Birth == f.Birth {
			gen = max(gen, int64(e.id.Gen)+1)
		}
	}
	if g := s.gens[f.Key()]; g.birth == f.Birth {
		gen = max(gen, g.next)
	}
	id := fileid.New(f, func(id fileid.ID) bool { return int64(id.Gen) < gen })
	e := s.addLocked(id, id.String())
	e.name = name
	return e
}

func (s *identities) addLocked(id fileid.ID, text string) *Entry {
	e := s.byID[text]
	if e == nil {
		e = &Entry{id: id, given: id.Key(), text: text}
		s.byID[text] = e
		s.byKey[id.Key()] = append(s.byKey[id.Key()], e)
	}
	return e
}

// store returns the identity of a stored progress; nil if it is over. moved is where its data lies now, given where it was
// when it got its id.
func (s *identities) store(given, moved fileid.ID, text, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past[text] {
		return nil
	}
	if given.Key() != moved.Key() {
		if g := s.gens[given.Key()]; given.Birth >= g.birth {
			s.gaveLocked(given)
		}
	}
	e := s.byID[text]
	if e == nil {
		e = s.addLocked(moved, text)
		e.name = name
	}
	if e.file == nil && e.phase == known && !e.liesAt(func(id fileid.ID) bool { return id == moved }) {
		if !e.liesAt(func(id fileid.ID) bool { return id.Key() == moved.Key() }) {
			s.byKey[moved.Key()] = append(s.byKey[moved.Key()], e)
		}
		e.others = append(e.others, moved)
	}
	return e
}

// liesAt reports whether a condition holds for the id with one of the inodes in which the data may lie.
func (e *Entry) liesAt(is func(fileid.ID) bool) bool {
	return is(e.id) || slices.ContainsFunc(e.others, is)
}

// unmet returns the identities of which no file was met, in order.
func (s *identities) unmet() []*Entry {
	return slices.DeleteFunc(s.unmetOrAwaited(), func(e *Entry) bool { return e.file != nil })
}

// unmetOrAwaited is unmet, and returns those of which the file waits, too.
func (s *identities) unmetOrAwaited() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Entry
	for _, e := range s.byID {
		if (e.file == nil || e.file.state == awaiting) && e.phase == known && !e.done && len(e.sealed) == 0 {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int { return strings.Compare(a.text, b.text) })
	return out
}

// displace notes that other data stands in the inode of e.
func (s *identities) displace(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.phase == known {
		e.phase = displaced
	}
	s.unkeyLocked(e)
}

func (s *identities) unkeyLocked(e *Entry) {
	s.gaveLocked(e.id)
	for _, id := range append(e.others, e.id) {
		key := id.Key()
		if list := slices.DeleteFunc(s.byKey[key], func(o *Entry) bool { return o == e }); len(list) > 0 {
			s.byKey[key] = list
		} else {
			delete(s.byKey, key)
		}
	}
	e.others = nil
}

// gaveLocked notes an id that is not given again, although no file may be found by it any more.
func (s *identities) gaveLocked(id fileid.ID) {
	key := id.Key()
	if g := s.gens[key]; g.birth != id.Birth || g.next <= int64(id.Gen) {
		s.gens[key] = generation{id.Birth, int64(id.Gen) + 1}
	}
}

// end notes that e is over.
func (s *identities) end(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.phase = over
	s.past[e.text] = true
	s.unkeyLocked(e)
}

// forget drops what is known of an id whose progress is dropped. It reports whether no route has it any more.
func (s *identities) forget(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.past, text)
	if e := s.byID[text]; e != nil && e.phase == over && e.refs == 0 {
		delete(s.byID, text)
	}
}

// drop removes an identity of which no file was met.
func (s *identities) drop(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refs == 0 && s.byID[e.text] == e {
		delete(s.byID, e.text)
		s.unkeyLocked(e)
	}
}

// move notes that the data of e lies in another file now.
func (s *identities) move(e *Entry, to fileid.File, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unkeyLocked(e)
	e.phase = known
	e.id.Dev, e.id.Ino, e.id.Birth, e.id.ModTime = to.Dev, to.Ino, to.Birth, 0
	e.name = name
	s.byKey[e.id.Key()] = append(s.byKey[e.id.Key()], e)
}

// moveDevice notes that the file system of e has another device number.
func (s *identities) moveDevice(e *Entry, dev uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unkeyLocked(e)
	e.id.Dev = dev
	s.byKey[e.id.Key()] = append(s.byKey[e.id.Key()], e)
}

// settle notes in which of several inodes the data of e lies.
func (s *identities) settle(e *Entry, i stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.others) == 0 {
		return
	}
	id := e.id
	if k := slices.IndexFunc(e.others, func(id fileid.ID) bool { return isOf(id, i) }); k >= 0 && !isOf(id, i) {
		id = e.others[k]
	}
	s.unkeyLocked(e)
	e.id = id
	s.byKey[id.Key()] = append(s.byKey[id.Key()], e)
}

// idOf returns the id of e with the inode in which its data lies.
func (s *identities) idOf(e *Entry) fileid.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.id
}

func (s *identities) phaseOf(e *Entry) phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.phase
}

// get returns the identity with a text, nil if there is none.
func (s *identities) get(text string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[text]
}

// isOver reports whether an id is over and its progress was not dropped.
func (s *identities) isOver(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past[text]
}

// ref notes one more cursor of e. What closed readers have sealed is sealed again by the next ones.
func (s *identities) ref(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[e.text] == nil {
		s.byID[e.text] = e
		if e.phase == known {
			s.byKey[e.id.Key()] = append(s.byKey[e.id.Key()], e)
		}
	}
	before := len(e.sealed)
	e.sealed = slices.DeleteFunc(e.sealed, func(at sealing) bool { return at.r == nil })
	e.refs += 1 - (before - len(e.sealed))
}

// close forgets the files of all identities, and those that were not met.
func (s *identities) close() {
	for _, e := range s.unmet() {
		s.drop(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byID {
		e.file = nil
	}
}

// unref notes that r has no cursor of e any more. keep is set if r was closed: what it has sealed can still be finished.
func (s *identities) unref(e *Entry, r *Reader, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keep {
		for i, at := range e.sealed {
			if at.r == r {
				e.sealed[i].r = nil
				return
			}
		}
	}
	e.unseal(r)
	if e.refs--; e.refs > 0 {
		return
	}
	if s.byID[e.text] == e {
		delete(s.byID, e.text)
	}
	if e.phase == known {
		s.unkeyLocked(e)
	}
}

func (e *Entry) unseal(r *Reader) {
	e.sealed = slices.DeleteFunc(e.sealed, func(at sealing) bool { return at.r == r })
}

// noteSealed notes that a route has handed out all of a file.
func (s *identities) noteSealed(cur *cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur.entry.unseal(cur.r)
	cur.entry.sealed = append(cur.entry.sealed, sealing{
		r: cur.r, at: cur.last, to: cur.pos.Next, seen: cur.f.info, when: cur.f.looked,
	})
}

// noteGrown notes that a sealed file has more.
func (s *identities) noteGrown(cur *cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur.entry.unseal(cur.r)
	cur.r.saved[cur.entry.text] = 0
}

// noteDone notes that an earlier run has finished the file.
func (s *identities) noteDone(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done = true
}

func (s *identities) noteName(e *Entry, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.name = name
}

func (s *identities) nameOf(e *Entry) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.name
}

// Is reports whether a stat can be of e's file.
func (e *Entry) Is(info vfs.Info) bool { return IsOf(e.id, info) }

// placeOf returns the id of a stored progress as it was given, and with the inode in which its data lies now.
func (c *Catalogue) placeOf(m stream.Mark) (given, now fileid.ID, ok bool) {
	id, err := fileid.Parse(m.Part.ID)
	if err != nil {
		c.log.Warn("the checkpoint has a partition that is no file; it is left alone", "partition", m.Part.ID, "error", err)
		return id, id, false
	}
	proof, err := fileid.ParseProof(m.Note)
	if err != nil {
		c.log.Warn("the checkpoint has a note that cannot be read; the file is known by its id alone", "file", m.Part.Name, "error", err)
	}
	now = id
	if proof.Moved != (fileid.Key{}) {
		now.Dev, now.Ino, now.Birth = proof.Moved.Dev, proof.Moved.Ino, proof.MovedBirth
	}
	return id, now, true
}
