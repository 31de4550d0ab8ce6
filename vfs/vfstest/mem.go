// Package vfstest provides an in-memory file system that simulates the loss of unsynced data in a
// crash, and conformance suites for implementations of vfs.
//
// [Mem] keeps two states of every file and directory: the visible one, and the one on disk.
// [Crashes] runs a workload. After each call that may have changed something, it yields file
// systems that a crash at that moment could leave. [Mem.Fail] makes the n-th call of a kind fail.
// Mem never touches a real file, and equal seeds give equal results. Mem and [Crashes] start no
// goroutine and run under testing/synctest. The conformance suites do not run under
// testing/synctest, because they start subtests and child processes.
package vfstest

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// Mem is an in-memory file system. Its root is "/", and relative paths start there. It is safe for
// concurrent use.
//
// Calls through vfs other than Path, Seek and Close are recorded ([Mem.Calls]) and can be made to
// fail ([Mem.Fail]). Mem also has methods for the actions of other programs, such as
// [Mem.WriteFile] and [Mem.Delete]. These are not recorded and not affected by a [Fault]. Their
// changes are durable at once, unless the name has unsynced changes.
//
// Mem checks the owner's permission to read or write an existing file when it is opened, as Linux
// does for a user other than root. It does not check the permissions of directories. Its size is
// unlimited. Simulate a full disk by a [Fault].
type Mem struct {
	mu      sync.Mutex // guards all fields below, and every node
	root    *node
	nextIno uint64
	ticks   int64
	now     func() time.Time
	names   []*nameOp // unsynced changes of directories, in order
	calls   []Call
	called  int
	faults  []*Fault
	after   func(Call) // called without mu after each call that may have changed something
}

// epoch is the initial time of a Mem's clock, which advances by a millisecond with each reading.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// New returns an empty file system.
func New() *Mem {
	m := &Mem{}
	m.root = m.newNode(fs.ModeDir | 0o700)
	return m
}

// SetClock sets the clock for modification and birth times. Nil restores the Mem's own clock.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

func (m *Mem) time() time.Time {
	if m.now != nil {
		return m.now()
	}
	m.ticks++
	return epoch.Add(time.Duration(m.ticks) * time.Millisecond)
}

// OpenDir opens a directory by its path, which may lead through symlinks.
func (m *Mem) OpenDir(name string) (vfs.Dir, error) {
	return resultOf(m, OpOpenDir, clean(name), false, func() (vfs.Dir, error) {
		n, err := m.resolve(clean(name))
		if err == nil && !n.mode.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return nil, pathError("open directory", name, err)
		}
		return &dir{m: m, node: n, path: name}, nil
	})
}

// MakeDir opens a directory by its path, and creates missing directories.
func (m *Mem) MakeDir(name string, perm fs.FileMode) (vfs.Dir, error) {
	return resultOf(m, OpMakeDir, clean(name), true, func() (vfs.Dir, error) {
		n, err := m.makeAll(clean(name), perm)
		if err != nil {
			return nil, pathError("make directory", name, err)
		}
		return &dir{m: m, node: n, path: name}, nil
	})
}

func (m *Mem) makeAll(name string, perm fs.FileMode) (*node, error) {
	at, sofar := m.root, "/"
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if part == "" {
			continue
		}
		sofar = path.Join(sofar, part)
		next := at.seen[part]
		if next != nil && next.mode&fs.ModeSymlink != 0 {
			var err error
			if next, err = m.resolve(sofar); err != nil {
				return nil, err
			}
		}
		if next == nil {
			next = m.makeDir(at, part, perm)
		}
		if !next.mode.IsDir() {
			return nil, syscall.ENOTDIR
		}
		at = next
	}
	return at, nil
}

// makeDir creates a directory, durably.
func (m *Mem) makeDir(at *node, name string, perm fs.FileMode) *node {
	n := m.newNode(fs.ModeDir | perm.Perm())
	at.seen[name], at.kept[name] = n, n
	at.changed = m.time()
	return n
}

// symlinksMost is the maximum number of symlinks in one path.
const symlinksMost = 40

// resolve follows an absolute path through symlinks.
func (m *Mem) resolve(name string) (*node, error) {
	at, links := m.root, 0
	where := "/"
	rest := strings.Trim(name, "/")
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if part == "" {
			continue
		}
		if !at.mode.IsDir() {
			return nil, syscall.ENOTDIR
		}
		next := at.seen[part]
		if next == nil {
			return nil, syscall.ENOENT
		}
		if next.mode&fs.ModeSymlink == 0 {
			at, where = next, path.Join(where, part)
			continue
		}
		if links++; links > symlinksMost {
			return nil, syscall.ELOOP
		}
		target := next.target
		if !path.IsAbs(target) {
			target = path.Join(where, target)
		}
		at, where, rest = m.root, "/", strings.Trim(path.Join(target, rest), "/")
	}
	return at, nil
}

func clean(name string) string { return path.Join("/", filepath.ToSlash(name)) }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// WriteFile writes data to a file, durably, and creates the file and its directories if they are
// missing. An existing file keeps its inode.
func (m *Mem) WriteFile(name string, data []byte) error {
	return m.outside(name, func(at *node, last string) error {
		n := at.seen[last]
		if n == nil {
			n = m.newNode(0o600)
			at.seen[last], at.kept[last] = n, n
			at.changed = m.time()
		}
		if !n.mode.IsRegular() {
			return vfs.ErrNotRegular
		}
		n.data = content{b: append([]byte(nil), data...)}
		n.disk = n.data.share()
		n.writes = nil
		n.changed = m.time()
		return nil
	})
}

// ReadFile returns the visible contents of the file.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.resolve(clean(name))
	if err == nil && !n.mode.IsRegular() {
		err = vfs.ErrNotRegular
	}
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return append([]byte(nil), n.data.b...), nil
}

// Symlink creates a symlink to target.
func (m *Mem) Symlink(target, name string) error {
	return m.plant(name, func() *node {
		n := m.newNode(fs.ModeSymlink | 0o777)
		n.target = target
		return n
	})
}

// Special creates a FIFO, socket or device, according to the type bits of mode.
func (m *Mem) Special(name string, mode fs.FileMode) error {
	return m.plant(name, func() *node { return m.newNode(mode.Type() | 0o600) })
}

func (m *Mem) plant(name string, make func() *node) error {
	return m.outside(name, func(at *node, last string) error {
		if at.seen[last] != nil {
			return fs.ErrExist
		}
		n := make()
		at.seen[last], at.kept[last] = n, n
		return nil
	})
}

// Chmod sets the permission bits of a file. 0 makes it unreadable.
func (m *Mem) Chmod(name string, perm fs.FileMode) error {
	return m.outside(name, func(at *node, last string) error {
		n := at.seen[last]
		if n == nil {
			return fs.ErrNotExist
		}
		n.mode = n.mode.Type() | perm.Perm()
		return nil
	})
}

// Delete removes a file, or a directory with all beneath it.
func (m *Mem) Delete(name string) error {
	return m.outside(name, func(at *node, last string) error {
		n := at.seen[last]
		if n == nil {
			return fs.ErrNotExist
		}
		delete(at.seen, last)
		delete(at.kept, last)
		n.links--
		return nil
	})
}

func (m *Mem) outside(name string, do func(at *node, last string) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, err := m.makeAll(path.Dir(clean(name)), 0o700)
	if err == nil {
		err = do(at, path.Base(clean(name)))
	}
	if err != nil {
		return fmt.Errorf("vfstest: %q: %w", name, err)
	}
	return nil
}
