package follow

import (
	"cmp"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// find returns the identities that match a file, the newest first.
func (s *identities) find(f fileid.File) []*Entry {
	return s.matching(f.Key(), func(id fileid.ID) bool { return id.Match(f) })
}

// at returns the known identities that match a stat, the newest first.
func (s *identities) at(i stat) []*Entry {
	return s.matching(keyOf(i), func(id fileid.ID) bool { return isOf(id, i) })
}

func (s *identities) matching(key fileid.Key, is func(fileid.ID) bool) []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Entry
	for _, e := range s.byKey[key] {
		if e.liesAt(is) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(b.id.Gen, a.id.Gen), strings.Compare(a.text, b.text))
	})
	return out
}

// liesAt reports whether one of the inodes that may hold the data of e meets a condition. The
// condition is a function that gets the id of e with that inode.
func (e *Entry) liesAt(is func(fileid.ID) bool) bool {
	return is(e.id) || slices.ContainsFunc(e.others, is)
}

// store returns the identity for stored progress, and creates it if there is none. It returns nil
// if the file was read to its end or given up. given is the id that the file got first. moved is
// the same id, but with the inode of the file that has the data now. It equals given unless the
// data is in another file, such as a copy.
func (s *identities) store(given, moved fileid.ID, text, name string) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[text]
	if e != nil && e.phase == over {
		return nil
	}
	if given.Key() != moved.Key() {
		if g := s.gens[given.Key()]; given.Birth >= g.birth {
			s.reserveLocked(given)
		}
	}
	if e == nil {
		e = s.addLocked(moved, text)
		e.name = name
	}
	e.dormant = false
	if e.file == nil && e.phase == known && !e.liesAt(func(id fileid.ID) bool { return id == moved }) {
		s.keyLocked(e, moved)
		e.others = append(e.others, moved)
	}
	return e
}

// placeOf returns two ids for stored progress: the id that the file got first, and the same id with
// the inode that has the data now. They differ if the data is in another file, such as a copy. It
// also returns the stored fingerprint, which is empty if it is invalid.
func (c *Catalogue) placeOf(m stream.Mark) (
	given, now fileid.ID, fingerprint fileid.Fingerprint, ok bool,
) {
	id, err := fileid.Parse(m.Part.ID)
	if err != nil {
		c.log.Warn("the checkpoint has a partition that is no file; it is ignored", "partition",
			m.Part.ID, "error", err)
		return id, id, fingerprint, false
	}
	fingerprint, err = fileid.ParseFingerprint(m.Metadata)
	if err != nil {
		c.log.Warn("the checkpoint has a note that cannot be read; the file is known by its "+
			"id alone", "file", m.Part.Name, "error", err)
	}
	now = id
	if fingerprint.Moved != (fileid.Key{}) {
		now.Dev, now.Ino = fingerprint.Moved.Dev, fingerprint.Moved.Ino
		now.Birth = fingerprint.MovedBirth
	}
	return id, now, fingerprint, true
}

// withoutFile returns the identities of stored progress that have no file, or only one that awaits
// a successor, ordered by id.
func (s *identities) withoutFile() []*Entry {
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

// leave removes the inode of i from the inodes that may hold the data of e, and reports whether it
// has removed the inode. It changes nothing unless the function good accepts at least one of the
// remaining inodes.
func (s *identities) leave(e *Entry, i stat, good func(fileid.ID) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(append([]fileid.ID{e.id}, e.others...), func(id fileid.ID) bool { return isOf(id, i) })
	if e.phase != known || !slices.ContainsFunc(left, good) {
		return false
	}
	s.placeLocked(e, left...)
	return true
}

// placeLocked replaces the ids of e, and with them the inodes that may hold its data.
func (s *identities) placeLocked(e *Entry, ids ...fileid.ID) {
	s.unkeyLocked(e)
	e.id, e.others = ids[0], ids[1:]
	for _, id := range ids {
		s.keyLocked(e, id)
	}
}

// displace notes that the inode of e holds other data now. The data of e can then be found only in
// a file with another inode, by comparing bytes.
func (s *identities) displace(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.phase == known {
		e.phase = displaced
	}
	s.unkeyLocked(e)
}

// keyLocked makes e one of the identities that the inode of id may hold.
func (s *identities) keyLocked(e *Entry, id fileid.ID) {
	if list := s.byKey[id.Key()]; !slices.Contains(list, e) {
		s.byKey[id.Key()] = append(list, e)
	}
}

func (s *identities) unkeyLocked(e *Entry) {
	if !e.dormant {
		s.reserveLocked(e.id)
	}
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

// move notes that another file (to) with the given name holds the data of e now.
func (s *identities) move(e *Entry, to fileid.File, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := e.id
	id.Dev, id.Ino, id.Birth, id.ModTime = to.Dev, to.Ino, to.Birth, 0
	if n := len(to.Head); n > 0 && n < id.Len {
		short := fileid.New(to, nil)
		id.Len, id.Sum = short.Len, short.Sum
	}
	s.placeLocked(e, id)
	e.phase, e.name = known, name
}

// moveDevice notes that the file system of e has another device number.
func (s *identities) moveDevice(e *Entry, dev uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := e.id
	id.Dev = dev
	s.placeLocked(e, id)
}

// resolvePlace notes that i, one of several possible inodes, holds the data of e.
func (s *identities) resolvePlace(e *Entry, i stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.others) == 0 {
		return
	}
	id := e.id
	if k := slices.IndexFunc(e.others, func(id fileid.ID) bool { return isOf(id, i) }); k >= 0 && !isOf(id, i) {
		id = e.others[k]
	}
	s.placeLocked(e, id)
}
