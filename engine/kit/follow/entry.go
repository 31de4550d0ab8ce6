package follow

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// maxPrefix is the maximum length of the prefix of a file's data that is kept in memory. A new file
// may be an incomplete copy of a deleted or rewritten file, and shorter than the bytes that an id
// or a fingerprint hashes. The prefix then distinguishes a possible copy from an unrelated file.
const maxPrefix = 32

// Entry is the identity of a file, for all routes. Catalogue.mu guards id, phase, file and prefix;
// identities.mu guards the other fields. Writes of id and phase need both locks.
type Entry struct {
	id      fileid.ID // with the inode that holds the data now
	given   fileid.Key
	others  []fileid.ID // the same with other inodes that hold the data according to some routes
	text    string      // of the id as first given; the partition's id
	name    string      // beneath its directory, as last seen
	phase   phase
	done    bool // renamed, moved or deleted by its source; name is where it went
	dormant bool // a dormant file has the id
	refs    int  // cursors of this partition
	sealed  []sealing
	file    *file  // holds or awaits its data; nil if none was found
	prefix  []byte // the first bytes of the data as far as this process saw them
}

// phase is the stage of an identity.
type phase uint8

const (
	known phase = iota // a file with this inode and head has the identity
	// the inode holds other data now; the identity's data can be found only by its bytes
	displaced
	// it is read to its end or lost: no file gets it again. It is kept until its progress is dropped
	over
)

// sealing records that one route has sealed a file.
type sealing struct {
	r  *Reader // nil if it was closed
	at int64   // bytes of the file
	to int64   // end of its positions: equals at, unless the file is compressed

	seen stat          // as the file was then; zero if it was changed since
	when time.Duration // of the last look at it
}

// generation numbers the ids of one inode. Several files may have the same inode and birth time,
// one after the other. Their ids then differ in fileid.ID.Gen. next is the Gen of the next file
// with this birth time.
type generation struct{ birth, next int64 }

// identities holds the ids of a source's files, shared by all routes. Its methods are safe for
// concurrent use, but those that use Entry.file need Catalogue.mu.
type identities struct {
	mu    sync.Mutex
	byID  map[string]*Entry
	byKey map[fileid.Key][]*Entry // known ones, by the inodes that hold their data
	gens  map[fileid.Key]generation
	// missing has the reported missing files of earlier runs. It is guarded by Catalogue.mu.
	missing map[missing]bool
}

// missing is a file that a route has not delivered to its end.
type missing struct{ route, id string }

func newIdentities() identities {
	return identities{
		byID: make(map[string]*Entry), byKey: make(map[fileid.Key][]*Entry),
		gens: make(map[fileid.Key]generation), missing: make(map[missing]bool),
	}
}

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
		s.keyLocked(e, id)
	}
	return e
}

// reserveLocked reserves an id, so that it is not given again even if no file has it any more.
func (s *identities) reserveLocked(id fileid.ID) {
	key := id.Key()
	if g := s.gens[key]; g.birth != id.Birth || g.next <= int64(id.Gen) {
		s.gens[key] = generation{id.Birth, int64(id.Gen) + 1}
	}
}

// end notes that the file of e was read to its end or is lost, so that no file gets its id again.
func (s *identities) end(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.phase = over
	s.byID[e.text] = e // unref may have removed it
	s.unkeyLocked(e)
}

// isOver reports whether the file of an id was read to its end or given up, so that no file gets
// the id again.
func (s *identities) isOver(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[text]
	return e != nil && e.phase == over
}

// forget removes an id when its progress is dropped.
func (s *identities) forget(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[text]; e != nil && e.phase == over && e.refs == 0 {
		delete(s.byID, text)
	}
}

// noteDormant notes that a dormant file (one that is only listed until it changes) has the id of e.
// The id belongs to this file even if no cursor refers to e.
func (s *identities) noteDormant(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.dormant = true
}

// reserve reserves the id of a file that is no longer dormant, so that no later file gets this id.
func (s *identities) reserve(d *dormantFile) {
	id, err := fileid.Parse(d.text)
	if err != nil {
		return // cannot happen: the file got this id when it was identified
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserveLocked(fileid.ID{Dev: d.key.Dev, Ino: d.key.Ino, Birth: int64(d.birth), Gen: id.Gen})
}

// drop removes the identity e, unless a route has a cursor of its partition.
func (s *identities) drop(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refs == 0 && e.phase != over && s.byID[e.text] == e {
		delete(s.byID, e.text)
		s.unkeyLocked(e)
	}
}

func (s *identities) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey) == 0
}

func (s *identities) get(text string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[text]
}

// ref counts one more cursor of e. It also removes the closed readers from e.sealed, the list of
// the readers that have read the file to its end, and no longer counts their cursors. The next
// reader of the same route is added to the list when it reaches the end of the file.
func (s *identities) ref(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[e.text] == nil {
		s.byID[e.text] = e
		if e.phase == known {
			s.keyLocked(e, e.id)
		}
	}
	e.dormant = false
	before := len(e.sealed)
	e.sealed = slices.DeleteFunc(e.sealed, func(at sealing) bool { return at.r == nil })
	e.refs += 1 - (before - len(e.sealed))
}

// close removes the identities without a file (see withoutFile), because the next reader adds them
// again from its stored progress. It detaches the other identities from their files.
func (s *identities) close() {
	for _, e := range s.withoutFile() {
		s.drop(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byID {
		e.file = nil
	}
}

// unref removes one cursor of e, which belongs to r. keep is set if r was closed after it had read
// all of the file. unref then keeps the entry of r in e.sealed, because the source can still
// rename, move or delete the file. unused reports whether no cursor of e is left.
func (s *identities) unref(e *Entry, r *Reader, keep bool) (unused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if keep {
		for i, at := range e.sealed {
			if at.r == r {
				e.sealed[i].r = nil
				return false
			}
		}
	}
	e.unseal(r)
	if e.refs--; e.refs > 0 {
		return false
	}
	if e.phase != over && s.byID[e.text] == e {
		delete(s.byID, e.text)
	}
	if e.phase == known {
		s.unkeyLocked(e)
	}
	return true
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
		r: cur.r, at: cur.last, to: cur.pos.Next, seen: cur.f.info, when: cur.f.refreshedAt,
	})
}

// noteGrown notes that a file has grown after the route had handed out all of it.
func (s *identities) noteGrown(cur *cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur.entry.unseal(cur.r)
	cur.r.saved[cur.entry.text] = 0
}

func (s *identities) noteName(e *Entry, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.name = name
}
