package follow

import (
	"slices"

	"github.com/penstock-io/penstock/fileid"
)

// born identifies a file on its file system, whatever device number that has.
type born struct {
	ino   uint64
	birth stamp
}

// renumber recognises the files of earlier runs whose file system has another device number now: it
// was mounted again, the machine was restarted, or the files were copied with their file system. A
// stored id is moved to a listed file of the same inode and birth time if no listed file is on the
// old device. The head and the proof are compared later, as those of any other file. Files without
// a birth time are left alone: inode numbers alone say too little.
func (c *catalogue) renumber(r *Reader) {
	devices := make(map[uint64]bool)
	files := make(map[born]*file)
	for key, f := range r.byKey {
		devices[key.Dev] = true
		if f.info.Birth.known() && f.entry == nil {
			files[born{key.Ino, f.info.Birth}] = f
		}
	}
	r.resting.each(func(d *rest) bool {
		devices[d.key.Dev] = true
		return true
	})
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	moved := make(map[fileid.Key][]knownID)
	for key, ids := range r.known {
		if devices[key.Dev] {
			continue
		}
		for _, k := range ids {
			f := files[born{key.Ino, stamp(k.id.Birth)}]
			if f == nil {
				continue
			}
			c.s.gaveLocked(k.id)
			k.id.Dev = f.info.Dev
			moved[key] = append(moved[key], k)
		}
	}
	n := 0
	for key, ids := range moved {
		for _, k := range ids {
			r.known[key] = withoutID(r.known[key], k.text)
			r.known[k.id.Key()] = append(r.known[k.id.Key()], k)
			n++
		}
		if len(r.known[key]) == 0 {
			delete(r.known, key)
		}
	}
	if n > 0 {
		c.s.log.Info("a file system has another device number; its files are recognised by inode and birth time",
			"files", n, "route", r.o.Route)
	}
}

// withoutID returns list without the id of that text.
func withoutID(list []knownID, text string) []knownID {
	return slices.DeleteFunc(list, func(k knownID) bool { return k.text == text })
}
