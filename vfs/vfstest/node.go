package vfstest

import (
	"io/fs"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// node is a file, directory or symlink, independent of its names.
type node struct {
	ino           uint64
	mode          fs.FileMode
	links         uint64
	born, changed time.Time
	target        string // target of a symlink
	// path is the path by which a file was last opened. A rename of the file updates it.
	path   string
	locked bool

	// A regular file.
	data   content // visible contents
	disk   content // synced contents
	writes []write // unsynced, in order

	// A directory.
	seen map[string]*node // visible names
	kept map[string]*node // synced names
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

// content is the bytes of a file, which clones may share. frozen is the number of bytes at the
// start of b that are shared. They are never overwritten in place: a write to one of them first
// copies b.
type content struct {
	b      []byte
	frozen int
}

// share returns a content with the same bytes. Both contents may be changed.
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

// write is one unsynced change of a file.
type write struct {
	off  int
	data []byte
	size int // truncated to this size; -1 for a write
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

// sync makes unsynced writes durable. If it fails, the writes are no longer pending, as on Linux:
// they stay visible, but no later sync saves them.
func (n *node) sync(failed bool) {
	if !failed {
		for i := range n.writes {
			n.writes[i].apply(&n.disk)
		}
	}
	n.writes = nil
}

// nameOp is one unsynced change of directories.
type nameOp struct {
	// changes has one change or, for a rename, two: the creation of the new name, then the removal
	// of the old one, which may be in another directory.
	changes []change
}

type change struct {
	dir  *node
	name string
	node *node
	gone bool // the name is removed, if it still refers to that node
}

func (c *change) apply(entries map[string]*node) {
	switch {
	case !c.gone:
		entries[c.name] = c.node
	case entries[c.name] == c.node:
		delete(entries, c.name)
	}
}

// between reports whether the operation is a rename from one directory to another.
func (o *nameOp) between() bool {
	return len(o.changes) > 1 && o.changes[0].dir != o.changes[1].dir
}

func (m *Mem) note(changes ...change) {
	now := m.time()
	for i := range changes {
		changes[i].apply(changes[i].dir.seen)
		changes[i].dir.changed = now
	}
	m.names = append(m.names, &nameOp{changes: changes})
}

// syncNames makes the changes of the directory d durable. If a file was renamed from d to another
// directory, the new name becomes durable, too, because no journaling file system loses both names.
// If the sync fails, the changes are no longer pending, like the writes of a file.
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
