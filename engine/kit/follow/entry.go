package follow

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Entry is a file that has an id. Its fields are the set's.
type Entry struct {
	id    fileid.ID  // as its file is found now: where a copy took the data over, the copy's device, inode and birth
	given fileid.Key // where it was found when this process met it
	text  string     // of the id that was given
	name  string     // beneath its directory, where it was seen last
	refs  int        // readers that know it
	dead  bool       // what it named is gone, although the inode may live on
	done  bool       // renamed, moved or deleted; name is where it went

	sealed []sealing
}

// sealing is where one reader has sealed a file.
type sealing struct {
	r  *Reader
	at int64 // bytes of the file
	to int64 // where its positions end: the same, unless it is compressed

	seen stat          // as the file was then; zero if it was changed since
	when time.Duration // of the last look at it
}

// knownID is an id that a route has stored.
type knownID struct {
	id   fileid.ID // where the data lies now
	text string
}

// generation is the lowest one that no id of an inode and birth has had.
type generation struct{ birth, next int64 }

// find finds the entry of a file: among what r's route has stored, the files that readers know
// already, and what other routes have stored. It is nil for a file that nobody knows. The entry is
// r's until it calls release.
func (s *Set) find(r *Reader, f fileid.File, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findLocked(r, f)
	if e != nil {
		e.refs++
		e.name = name
	}
	return e
}

// give gives a file that nobody knows a new id. It is nil where another route has given the file
// one since find: two ids of one file would be two files to whoever looks for it next. The entry is
// r's until it calls release.
func (s *Set) give(r *Reader, f fileid.File, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.findLocked(r, f) != nil {
		return nil
	}
	return s.giveLocked(f, name)
}

// giveOwn gives a file a new id, even where other routes know it by another one: they stand
// elsewhere in it.
func (s *Set) giveOwn(f fileid.File, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.giveLocked(f, name)
}

func (s *Set) giveLocked(f fileid.File, name string) *Entry {
	gen := s.nextGenLocked(f)
	id := fileid.New(f, func(id fileid.ID) bool { return int64(id.Gen) < gen })
	e := s.entryLocked(id, id.String())
	e.refs++
	e.name = name
	return e
}

func (s *Set) findLocked(r *Reader, f fileid.File) *Entry {
	for _, k := range r.known[f.Key()] {
		if k.id.Match(f) {
			return s.entryLocked(k.id, k.text)
		}
	}
	if e := s.byKey[f.Key()]; e != nil && !e.dead && e.id.Match(f) && !r.past[e.text] {
		return e
	}
	for _, o := range s.readers {
		for _, k := range o.storedLocked(f.Key()) {
			if k.id.Match(f) && !r.past[k.text] {
				return s.entryLocked(k.id, k.text)
			}
		}
	}
	return nil
}

// entryLocked is the entry of an id whose file was found.
func (s *Set) entryLocked(id fileid.ID, text string) *Entry {
	e := s.knowLocked(id, text)
	s.byKey[e.id.Key()] = e
	return e
}

func (s *Set) knowLocked(id fileid.ID, text string) *Entry {
	e := s.byID[text]
	if e == nil {
		e = &Entry{id: id, given: id.Key(), text: text}
		s.byID[text] = e
	}
	return e
}

// nextGenLocked is the lowest generation that no id of this inode and birth has had.
func (s *Set) nextGenLocked(f fileid.File) (gen int64) {
	above := func(id fileid.ID) {
		if id.Birth == f.Birth {
			gen = max(gen, int64(id.Gen)+1)
		}
	}
	if e := s.byKey[f.Key()]; e != nil {
		above(e.id)
	}
	if g := s.gens[f.Key()]; g.birth == f.Birth {
		gen = max(gen, g.next)
	}
	for _, o := range s.readers {
		for _, k := range o.storedLocked(f.Key()) {
			above(k.id)
		}
		for _, k := range o.dead[f.Key()] {
			above(k.id)
		}
	}
	return gen
}

// kill says that what e named stands no longer at a place, where a reader has found other data: no
// file there is taken for it any more. Where another route has seen already in which copy the data
// lives on, e is that copy's now, and lives.
func (s *Set) kill(e *Entry, at stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isOf(e.id, at) {
		return
	}
	s.killLocked(e)
	for _, r := range s.readers {
		r.disownLocked(e)
	}
}

func (s *Set) killLocked(e *Entry) {
	e.dead = true
	s.gaveLocked(e.id)
}

// gaveLocked notes an id that is not given again, although no file may be found by it any more
// where it was given.
func (s *Set) gaveLocked(id fileid.ID) {
	key := id.Key()
	if g := s.gens[key]; g.birth != id.Birth || g.next <= int64(id.Gen) {
		s.gens[key] = generation{id.Birth, int64(id.Gen) + 1}
	}
}

// gave is gaveLocked for a stored id whose data lies elsewhere now. What is known of the inode as
// it is now stays.
func (s *Set) gave(id fileid.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gens[id.Key()]; id.Birth >= g.birth {
		s.gaveLocked(id)
	}
}

// disownLocked moves what the route has stored of e to what is gone.
func (r *Reader) disownLocked(e *Entry) {
	for _, key := range []fileid.Key{e.id.Key(), e.given} {
		list := r.known[key]
		at := slices.IndexFunc(list, func(k knownID) bool { return k.text == e.text })
		if at >= 0 {
			r.dead[key] = append(r.dead[key], list[at])
			r.known[key] = slices.Delete(list, at, at+1)
			return
		}
	}
}

// end says that r has done with e for good: it takes no file for it any more. The readers of other
// routes may still have handles of it; after the last one nobody does.
func (s *Set) end(r *Reader, e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.past[e.text] = true
	r.disownLocked(e)
	same := func(k knownID) bool { return k.text == e.text }
	if key := e.id.Key(); !slices.ContainsFunc(r.dead[key], same) && !slices.ContainsFunc(r.dead[e.given], same) {
		r.dead[key] = append(r.dead[key], knownID{id: e.id, text: e.text})
	}
	if e.refs <= 1 && !slices.ContainsFunc(s.readers, func(o *Reader) bool { return o.knowsLocked(e) }) {
		s.killLocked(e)
	}
}

// endDead ends what another file's arrival in e's inode had left of e: all of e was read elsewhere.
func endDead(r *Reader, e *Entry) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, key := range []fileid.Key{e.id.Key(), e.given} {
		r.dead[key] = slices.DeleteFunc(r.dead[key], func(k knownID) bool {
			if k.text == e.text {
				r.s.gaveLocked(k.id)
			}
			return k.text == e.text
		})
		if len(r.dead[key]) == 0 {
			delete(r.dead, key)
		}
	}
}

// knowsLocked says whether the route has stored e and it is not gone.
func (r *Reader) knowsLocked(e *Entry) bool {
	same := func(k knownID) bool { return k.text == e.text }
	return slices.ContainsFunc(r.known[e.id.Key()], same) || slices.ContainsFunc(r.known[e.given], same)
}

// movedOn says whether another route has found e's data in a copy elsewhere.
func (s *Set) movedOn(e *Entry, from stat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !e.dead && !isOf(e.id, from)
}

// idOf is the id of e with the place where its file is found now, which another route may change at
// any time.
func (s *Set) idOf(e *Entry) fileid.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.id
}

// placeOf is idOf, and says whether that is another place than where this process has met e first.
func (s *Set) placeOf(e *Entry) (id fileid.ID, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.id, e.id.Key() != e.given
}

// foundAt is idOf and the name under which the file was seen last.
func (s *Set) foundAt(e *Entry) (fileid.ID, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.id, e.name
}

// standsAt says whether e's file is the one at a place still: it was neither rewritten nor found in
// a copy elsewhere.
func (s *Set) standsAt(e *Entry, at stat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !e.dead && isOf(e.id, at)
}

func (s *Set) isDead(e *Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.dead
}

// forget gives back what find or give gave.
func (s *Set) forget(r *Reader, e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsealLocked(r, e)
	if e.refs--; e.refs > 0 {
		return
	}
	if s.byID[e.text] == e {
		delete(s.byID, e.text)
	}
	if s.byKey[e.id.Key()] == e && !e.dead {
		delete(s.byKey, e.id.Key())
	}
}

func (s *Set) noteSealed(r *Reader, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsealLocked(r, f.entry)
	f.entry.sealed = append(f.entry.sealed, sealing{
		r: r, at: f.last, to: f.cursor.Next, seen: f.info, when: f.looked,
	})
}

func (s *Set) noteGrown(r *Reader, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsealLocked(r, f.entry)
	r.saved[f.entry.text] = 0
}

func (s *Set) unsealLocked(r *Reader, e *Entry) {
	e.sealed = slices.DeleteFunc(e.sealed, func(at sealing) bool { return at.r == r })
}

// markDone says that the file was finished in an earlier run.
func (s *Set) markDone(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done = true
}

func (s *Set) renamed(e *Entry, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.name = name
}

// Is says whether a stat can be of e's file.
func (e *Entry) Is(info vfs.Info) bool { return IsOf(e.id, info) }

// knownOf indexes the marks of a route by where their files were seen last.
func (r *Reader) knownOf(m stream.Mark) {
	if k, ok := r.placed(m); ok {
		r.known[k.id.Key()] = append(r.known[k.id.Key()], k)
	}
}

// placed is the id of a mark, with the place where its data lies now; false: the mark is of no
// file.
func (r *Reader) placed(m stream.Mark) (knownID, bool) {
	id, err := fileid.Parse(m.Part.ID)
	if err != nil {
		r.s.log.Warn("the checkpoint has a partition that is no file; it is left alone", "partition", m.Part.ID, "error", err)
		return knownID{}, false
	}
	proof, err := fileid.ParseProof(m.Note)
	if err != nil {
		r.s.log.Warn("the checkpoint has a note that says nothing; the file is known by its id alone", "file", m.Part.Name, "error", err)
	}
	if proof.Moved != (fileid.Key{}) {
		r.s.gave(id)
		id.Dev, id.Ino, id.Birth = proof.Moved.Dev, proof.Moved.Ino, proof.MovedBirth
	}
	return knownID{id: id, text: m.Part.ID}, true
}
