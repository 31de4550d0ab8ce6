package vfstest

import (
	"io/fs"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// node is a file, directory or symlink, whatever its names are.
type node struct {
	ino           uint64
	mode          fs.FileMode
	links         uint64
	born, changed time.Time
	target        string // of a symlink
	path          string // of a file that was opened: by which name, or what it was renamed to since
	locked        bool

	// A regular file.
	data   content // as a reader sees it
	disk   content // as it was synced
	writes []write // not synced, in order

	// A directory.
	seen map[string]*node // as a reader sees it
	kept map[string]*node // as it was synced
}

func (m *Mem) newNode(mode fs.FileMode) *node {
	m.nextIno++
	now := m.time()
	n := &node{ino: m.nextIno, mode: mode, links: 1, born: now, changed: now}
	if mode.IsDir() {
		n.seen, n.kept = make(map[string]*node), make(map[string]*node)
	}
	return n
}

func (n *node) info(name string) vfs.Info {
	return vfs.Info{
		Name: name, Size: int64(len(n.data.b)), ModTime: n.changed, Mode: n.mode,
		Dev: 1, Ino: n.ino, Birth: n.born, Links: n.links,
	}
}

// content is bytes that clones may share: what lies below frozen is never overwritten in place.
type content struct {
	b      []byte
	frozen int
}

// share returns a content with the same bytes, which both may change.
func (c *content) share() content {
	c.frozen = len(c.b)
	return content{b: c.b[:len(c.b):len(c.b)], frozen: len(c.b)}
}

func (c *content) write(off int, p []byte) {
	if len(p) == 0 {
		return
	}
	if off < c.frozen {
		c.b, c.frozen = append([]byte(nil), c.b...), 0
	}
	if gap := off - len(c.b); gap > 0 {
		c.b = append(c.b, make([]byte, gap)...)
	}
	n := copy(c.b[off:], p)
	c.b = append(c.b, p[n:]...)
}

func (c *content) truncate(size int) {
	if size > len(c.b) {
		c.b = append(c.b, make([]byte, size-len(c.b))...)
		return
	}
	c.b = c.b[:size:size] // a later append must not write where a clone reads
	c.frozen = min(c.frozen, size)
}

// write is one change of a file that was not synced.
type write struct {
	off  int
	data []byte
	size int // truncated to it; -1: written
}

func (w *write) apply(c *content) {
	if w.size >= 0 {
		c.truncate(w.size)
		return
	}
	c.write(w.off, w.data)
}

func (n *node) write(off int, p []byte) {
	n.data.write(off, p)
	n.writes = append(n.writes, write{off: off, data: append([]byte(nil), p...), size: -1})
}

func (n *node) truncate(size int) {
	n.data.truncate(size)
	n.writes = append(n.writes, write{size: size})
}

// sync brings what was written since the last one to the disk. When it fails, the system forgets
// that there is anything to bring: what was written stays visible, and no later sync saves it.
func (n *node) sync(failed bool) {
	if !failed {
		for i := range n.writes {
			n.writes[i].apply(&n.disk)
		}
	}
	n.writes = nil
}

// nameOp is one change of directories that was not synced.
type nameOp struct {
	// One directory's, or those of a rename between two: the name that is made, then the one that
	// goes.
	changes []change
}

type change struct {
	dir  *node
	name string
	node *node
	gone bool // the name goes, if it is still that node's
}

func (c *change) apply(entries map[string]*node) {
	switch {
	case !c.gone:
		entries[c.name] = c.node
	case entries[c.name] == c.node:
		delete(entries, c.name)
	}
}

// between says whether the op is of two directories.
func (o *nameOp) between() bool { return len(o.changes) > 1 && o.changes[0].dir != o.changes[1].dir }

func (m *Mem) note(changes ...change) {
	now := m.time()
	for i := range changes {
		changes[i].apply(changes[i].dir.seen)
		changes[i].dir.changed = now
	}
	m.names = append(m.names, &nameOp{changes: changes})
}

// syncNames makes what happened in a directory durable. A rename out of it brings the new name with
// it: no file system that keeps a journal loses both. When it fails, what happened is forgotten, as
// with a file.
func (m *Mem) syncNames(d *node, failed bool) {
	kept := m.names[:0]
	for _, op := range m.names {
		if op.between() && op.changes[0].dir == d {
			if !failed {
				op.changes[0].apply(d.kept)
			}
			kept = append(kept, &nameOp{changes: op.changes[1:]})
			continue
		}
		if op.changes[len(op.changes)-1].dir != d {
			kept = append(kept, op)
			continue
		}
		for i := range op.changes {
			if !failed {
				op.changes[i].apply(op.changes[i].dir.kept)
			}
		}
	}
	clear(m.names[len(kept):])
	m.names = kept
}
