package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/penstock-io/penstock/vfs"
)

// dir is an open directory of a Mem.
type dir struct {
	m      *Mem
	node   *node
	path   string
	closed bool
}

func (d *dir) Path() string { return d.path }

func (d *dir) Close() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	d.closed = true
	return nil
}

func (d *dir) full(name string) string { return path.Join(clean(d.path), name) }

// at resolves all parts of name but the last to a directory. The caller holds m.mu.
func (d *dir) at(op, name string) (*node, string, error) {
	if d.closed {
		return nil, "", pathError(op, name, fs.ErrClosed)
	}
	if err := vfs.CheckName(op, name, false); err != nil {
		return nil, "", err
	}
	at, rest := d.node, name
	for {
		part, more, found := strings.Cut(rest, "/")
		if !found {
			return at, part, nil
		}
		next, err := at.child(op, name, part)
		if err != nil {
			return nil, "", err
		}
		at, rest = next, more
	}
}

// child returns the subdirectory of n with the name part. op and name are for errors.
func (n *node) child(op, name, part string) (*node, error) {
	next := n.seen[part]
	switch {
	case next == nil:
		return nil, pathError(op, name, syscall.ENOENT)
	case next.mode&fs.ModeSymlink != 0:
		return nil, vfs.NotRegular(op, name, part, next.mode)
	case !next.mode.IsDir():
		return nil, pathError(op, name, fmt.Errorf("%q: %w", part, syscall.ENOTDIR))
	}
	return next, nil
}

// directory resolves name, or ".", to a directory. The caller holds m.mu.
func (d *dir) directory(op, name string) (*node, error) {
	if name == "." && !d.closed {
		return d.node, nil
	}
	at, last, err := d.at(op, name)
	if err != nil {
		return nil, err
	}
	return at.child(op, name, last)
}

func (d *dir) Open(name string) (vfs.File, error) { return d.OpenFile(name, os.O_RDONLY, 0) }

func (d *dir) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	changes := flag&(os.O_CREATE|os.O_TRUNC) != 0
	return resultOf(d.m, OpOpen, d.full(name), changes, func() (vfs.File, error) {
		at, last, err := d.at("open", name)
		if err != nil {
			return nil, err
		}
		n, err := d.m.openNode(at, name, last, flag, perm)
		if err != nil {
			return nil, err
		}
		n.path = d.full(name)
		return &file{m: d.m, node: n, flag: flag, name: last}, nil
	})
}

func (m *Mem) openNode(at *node, name, last string, flag int, perm fs.FileMode) (*node, error) {
	n := at.seen[last]
	switch {
	case n != nil && !n.mode.IsRegular():
		return nil, vfs.NotRegular("open", name, path.Base(name), n.mode)
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, syscall.EEXIST)
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, syscall.ENOENT)
	case n == nil:
		n = m.newNode(perm.Perm())
		m.note(change{dir: at, name: last, node: n})
		return n, nil
	}
	access := flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	if access != os.O_WRONLY && n.mode&0o400 == 0 || access != os.O_RDONLY && n.mode&0o200 == 0 {
		return nil, pathError("open", name, syscall.EACCES)
	}
	if flag&os.O_TRUNC != 0 && len(n.data.b) > 0 {
		n.truncate(0)
		n.changed = m.time()
	}
	return n, nil
}

func (d *dir) Stat(name string) (vfs.Info, error) {
	return resultOf(d.m, OpStat, d.full(name), false, func() (info vfs.Info, err error) {
		if name == "." && !d.closed {
			return d.node.info("."), nil
		}
		at, last, err := d.at("stat", name)
		if err != nil {
			return info, err
		}
		n := at.seen[last]
		if n == nil {
			return info, pathError("stat", name, syscall.ENOENT)
		}
		return n.info(last), nil
	})
}

func (d *dir) Entries(name string) ([]vfs.Entry, error) {
	return resultOf(d.m, OpList, d.full(name), false, func() ([]vfs.Entry, error) {
		n, err := d.directory("list", name)
		if err != nil {
			return nil, err
		}
		list := make([]vfs.Entry, 0, len(n.seen))
		for name, child := range n.seen {
			list = append(list, vfs.Entry{Name: name, Type: child.mode.Type()})
		}
		return list, nil
	})
}

func (d *dir) Rename(oldName string, to vfs.Dir, newName string) error {
	return d.move(oldName, to, newName, true)
}

func (d *dir) RenameNew(oldName string, to vfs.Dir, newName string) error {
	return d.move(oldName, to, newName, false)
}

func (d *dir) move(oldName string, to vfs.Dir, newName string, replace bool) error {
	target, ok := to.(*dir)
	if !ok || target.m != d.m {
		return pathError("rename", oldName,
			fmt.Errorf("to a directory of another file system: %w", fs.ErrInvalid))
	}
	return d.m.call(OpRename, target.full(newName), true, func(c *Call, _ *Fault) error {
		c.From = d.full(oldName)
		from, last, err := d.at("rename", oldName)
		if err != nil {
			return err
		}
		into, newLast, err := target.at("rename", newName)
		if err != nil {
			return err
		}
		n, there := from.seen[last], into.seen[newLast]
		switch {
		case n == nil:
			return linkError(c, syscall.ENOENT)
		case there != nil && !replace, there != nil && there.mode.IsDir() && there != n:
			return linkError(c, syscall.EEXIST)
		case there != nil && n.mode.IsDir() && there != n:
			return linkError(c, syscall.ENOTDIR)
		case there == n:
			return nil
		}
		if there != nil {
			there.links--
		}
		n.path = c.Path
		d.m.note(change{dir: into, name: newLast, node: n},
			change{dir: from, name: last, node: n, gone: true})
		return nil
	})
}

func linkError(c *Call, err error) error {
	return &os.LinkError{Op: "rename", Old: c.From, New: c.Path, Err: err}
}

func (d *dir) Remove(name string) error {
	return d.m.call(OpRemove, d.full(name), true, func(*Call, *Fault) error {
		at, last, err := d.at("remove", name)
		if err != nil {
			return err
		}
		n := at.seen[last]
		if n == nil {
			return pathError("remove", name, syscall.ENOENT)
		}
		if len(n.seen) > 0 {
			return pathError("remove", name, syscall.ENOTEMPTY)
		}
		n.links--
		d.m.note(change{dir: at, name: last, node: n, gone: true})
		return nil
	})
}

func (d *dir) MakeDir(name string, perm fs.FileMode) (vfs.Dir, error) {
	return resultOf(d.m, OpMakeDir, d.full(name), true, func() (vfs.Dir, error) {
		if err := vfs.CheckName("make directory", name, false); err != nil {
			return nil, err
		}
		if d.closed {
			return nil, pathError("make directory", name, fs.ErrClosed)
		}
		at := d.node
		for part := range strings.SplitSeq(name, "/") {
			if at.seen[part] == nil {
				d.m.makeDir(at, part, perm)
			}
			next, err := at.child("make directory", name, part)
			if err != nil {
				return nil, err
			}
			at = next
		}
		return &dir{m: d.m, node: at, path: path.Join(d.path, name)}, nil
	})
}

func (d *dir) OpenDir(name string) (vfs.Dir, error) {
	return resultOf(d.m, OpOpenDir, d.full(name), false, func() (vfs.Dir, error) {
		n, err := d.directory("open directory", name)
		if err != nil {
			return nil, err
		}
		return &dir{m: d.m, node: n, path: path.Join(d.path, name)}, nil
	})
}

func (d *dir) Sync() error {
	return d.m.callWith(OpSyncDir, clean(d.path), true, func(_ *Call, f *Fault) error {
		if d.closed {
			return pathError("sync", d.path, fs.ErrClosed)
		}
		d.m.syncNames(d.node, f != nil)
		if f != nil {
			return pathError("sync directory", d.path, f.Err)
		}
		return nil
	})
}

func (d *dir) Lock(name, text string) (io.Closer, error) {
	return resultOf(d.m, OpLock, d.full(name), true, func() (io.Closer, error) {
		at, last, err := d.at("lock", name)
		if err != nil {
			return nil, err
		}
		n, err := d.m.openNode(at, name, last, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if n.locked {
			return nil, fmt.Errorf("lock %q: held by %q: %w", d.full(name), n.data.b, vfs.ErrLocked)
		}
		n.locked = true
		n.truncate(0)
		n.write(0, []byte(text))
		return &lock{m: d.m, node: n}, nil
	})
}

type lock struct {
	m    *Mem
	node *node
}

func (l *lock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.node != nil {
		l.node.locked, l.node = false, nil
	}
	return nil
}
