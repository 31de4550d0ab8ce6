package follow

import (
	"cmp"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Identity is how a file of an earlier run is recognised.
type Identity uint8

const (
	// ByInode recognises a file by device, inode, birth time and content. A copy that has kept the
	// modification time is recognised by its name and content.
	ByInode Identity = iota
	// ByContent recognises a file by its name and content if its inode is not found.
	ByContent
)

// identityOptions are the values of the option identity.
var identityOptions = map[string]Identity{"auto": ByInode, "content": ByContent}

// relocate recognises copies of files of earlier runs, made when the directory was copied to
// another machine or restored. If the inode of a stored id is not listed, the id is moved to the
// listed file of the same name. This file must have no id and be a copy (see isCopy). Growing files
// do not need this method, because their copies are found as after a rotation.
func (q *quiet) relocate() {
	c, moved := q.c, 0
	for _, e := range c.ids.withoutFile() {
		isListed := func(id fileid.ID) bool {
			f := c.table.byKey[id.Key()]
			return f != nil && isOf(id, f.info)
		}
		if e.liesAt(isListed) {
			continue
		}
		marks := c.identify.marks(e)
		if len(marks) == 0 {
			continue
		}
		f := c.table.byLabel[marks[0].mark.Part.Name]
		if f == nil || f.entry != nil || len(c.ids.at(f.info)) > 0 || !q.isCopy(f, marks) {
			q.warnMissing(e, marks)
			continue
		}
		c.ids.move(e, f.seen(nil, false), f.name)
		moved++
	}
	if moved > 0 {
		c.log.Info("files were copied; they are recognised by name and content", "files", moved)
	}
}

// warnMissing reports that the rest of a partly delivered file of an earlier run cannot be read. It
// does so once for each file and route, even if the route is restarted.
func (q *quiet) warnMissing(e *Entry, marks []storedMark) {
	for _, m := range marks {
		key := missing{m.r.o.Route, e.text}
		if m.mark.Finished || m.mark.Watermark.Num == 0 || q.c.ids.missing[key] {
			continue
		}
		q.c.ids.missing[key] = true
		q.c.log.Warn("a file of an earlier run is missing, and was not delivered to its end",
			"file", m.mark.Part.Name, "delivered", m.mark.Watermark.Num, "route", m.r.o.Route)
		m.r.count("files_vanished", 1)
	}
}

// isCopy reports whether f is a copy of the file to which marks belong, by size, times and read
// data.
func (q *quiet) isCopy(f *file, marks []storedMark) bool {
	for _, m := range marks {
		if !q.mayBeCopy(f, m.mark) || !q.holdsAll(f, m.mark) {
			return false
		}
	}
	return true
}

// mayBeCopy reports whether f can be a copy of the file that m belongs to, by size and times. A
// copy of a completely read file has the same size and the same time, perhaps truncated to seconds.
// A copy of any other file has a modification time before its creation. With ByContent, size and
// times do not count.
func (q *quiet) mayBeCopy(f *file, m stream.Mark) bool {
	fingerprint := fingerprintOf(m)
	if fingerprint.At == 0 || f.info.Size == 0 {
		return false
	}
	if q.c.o.Identity == ByContent {
		return true
	}
	size := cmp.Or(fingerprint.Packed, fingerprint.At)
	if fingerprint.ModTime != 0 && f.info.Size == size {
		second := fingerprint.ModTime - fingerprint.ModTime%int64(time.Second)
		if t := int64(f.info.ModTime); t == fingerprint.ModTime || t == second {
			return true
		}
	}
	return !m.Finished && f.info.Birth.known() && f.info.ModTime < f.info.Birth
}

// holdsAll reports whether f contains all data that was read according to the stored progress m.
func (q *quiet) holdsAll(f *file, m stream.Mark) bool {
	c := q.c
	defer c.handles.close(f)
	if !c.handles.refresh(f) {
		return false
	}
	head, err := c.unpacker.firstHead(f, nil)
	if err != nil {
		return false // the next look reports the reason
	}
	why, err := c.identify.lacks(f, m, head)
	return why == "" && err == nil
}

// born identifies a file on its file system, independent of the device number.
type born struct {
	ino   uint64
	birth stamp
}

// renumber recognises files of earlier runs on a file system that has another device number now: it
// was remounted, the machine was restarted, or the whole file system was copied. A stored id gets
// the new device number if a listed file has the same inode and birth time, and if no known file is
// on the old device. The head and the fingerprint are compared later, as for any other file.
// Files without a birth time are skipped: inode numbers alone are weak evidence.
func (c *Catalogue) renumber() {
	devices := make(map[uint64]bool)
	files := make(map[born]*file)
	for key, f := range c.table.byKey {
		devices[key.Dev] = true
		if f.info.Birth.known() && f.entry == nil {
			files[born{key.Ino, f.info.Birth}] = f
		}
	}
	for key := range c.dormant.table.byKey {
		devices[key.Dev] = true
	}
	n := 0
	for _, e := range c.ids.withoutFile() {
		id := e.id
		if devices[id.Dev] {
			continue
		}
		if f := files[born{id.Ino, stamp(id.Birth)}]; f != nil {
			c.ids.moveDevice(e, f.info.Dev)
			n++
		}
	}
	if n > 0 {
		c.log.Info("a file system has another device number; its files are recognised by inode "+
			"and birth time", "files", n)
	}
}
