package vfstest

import (
	"fmt"
	"strings"
)

// Op is a kind of call.
type Op string

// The kinds of calls. Crashes simulates no crash after a call that only reads: OpStat, OpList,
// OpRead, OpOpenDir, and OpOpen without os.O_CREATE and os.O_TRUNC.
const (
	OpOpen     Op = "open" // Open and OpenFile
	OpRead     Op = "read" // Read and ReadAt
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync" // Sync of a file
	OpSyncDir  Op = "sync directory"
	OpRename   Op = "rename" // also RenameNew
	OpRemove   Op = "remove"
	OpMakeDir  Op = "make directory"
	OpOpenDir  Op = "open directory"
	OpStat     Op = "stat"
	OpList     Op = "list"
	OpLock     Op = "lock"
)

// Call is one call through vfs.
type Call struct {
	N    int // number of the call, from 1
	Op   Op
	Path string // absolute; for a rename the new path; for an open file its current name
	From string // for a rename: the old path
	Size int    // bytes read or written; for a truncate the new length
	Err  error
}

// String returns number, kind, path and result.
func (c Call) String() string {
	s := fmt.Sprintf("call %d: %s %s", c.N, c.Op, c.Path)
	if c.From != "" {
		s += " from " + c.From
	}
	if c.Size > 0 {
		s += fmt.Sprintf(" (%d bytes)", c.Size)
	}
	if c.Err != nil {
		s += ": " + c.Err.Error()
	}
	return s
}

// Fault makes calls fail.
type Fault struct {
	Op   Op     // calls of this kind; "" for all kinds
	Path string // calls whose path contains this text; "" for all
	Nth  int    // the nth matching call from now on; 0 means 1
	// Lasting makes all matching calls from the nth on fail, instead of only the nth.
	Lasting bool
	Err     error // the error returned, wrapped with the path
	Short   int   // for a write: bytes written before it fails, at most all but one

	seen, struck int
}

// Fail makes calls fail as f describes. A failed call has no effect, except for a write (see the
// field Short) and a sync. After a failed sync the data stays visible, but no later sync writes it
// to disk, as on Linux.
func (m *Mem) Fail(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// Heal removes all faults, and returns the number of calls that they have made fail.
func (m *Mem) Heal() (struck int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.faults {
		struck += f.struck
	}
	m.faults = nil
	return struck
}

// strike counts the call for each matching fault. It returns the first fault that makes the call
// fail, or nil if none does.
func (m *Mem) strike(op Op, path string) *Fault {
	var hit *Fault
	for _, f := range m.faults {
		if f.Op != "" && f.Op != op || !strings.Contains(path, f.Path) {
			continue
		}
		f.seen++
		if nth := max(f.Nth, 1); hit == nil && (f.seen == nth || f.Lasting && f.seen > nth) {
			f.struck++
			hit = f
		}
	}
	return hit
}

// callsKept is the number of latest calls that are always kept. When there are twice as many, the
// older half is dropped.
const callsKept = 1 << 16

// Calls returns the recorded calls, oldest first. Of more than 65,536 calls, the oldest may be
// missing.
func (m *Mem) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Call(nil), m.calls...)
}

// callBody performs the effect of a call under Mem.mu. The fault is nil unless one applies to the
// call.
type callBody func(c *Call, f *Fault) error

// call performs one call under m.mu. A fault prevents it completely.
func (m *Mem) call(op Op, path string, changes bool, do callBody) error {
	return m.callWith(op, path, changes, orFault(do))
}

// resultOf is [Mem.call] for a call with a result. It returns the zero value with an error.
func resultOf[T any](m *Mem, op Op, path string, changes bool,
	do func() (T, error)) (result T, err error) {
	err = m.call(op, path, changes, func(*Call, *Fault) (err error) {
		result, err = do()
		return err
	})
	return result, err
}

// callWith performs one call under m.mu. If a fault applies, it is passed to the function do, which
// handles it.
func (m *Mem) callWith(op Op, path string, changes bool, do callBody) error {
	m.mu.Lock()
	return m.callLocked(op, path, changes, do)
}

// call is [Mem.call] for the current path of an open file, which another goroutine may rename.
func (f *file) call(op Op, changes bool, do callBody) error {
	return f.callWith(op, changes, orFault(do))
}

func (f *file) callWith(op Op, changes bool, do callBody) error {
	f.m.mu.Lock()
	return f.m.callLocked(op, f.node.path, changes, do)
}

// orFault returns a callBody that runs the callBody do or, if a fault applies, returns the fault
// instead.
func orFault(do callBody) callBody {
	return func(c *Call, f *Fault) error {
		if f != nil {
			return pathError(string(c.Op), c.Path, f.Err)
		}
		return do(c, nil)
	}
}

// callLocked performs one call and unlocks m.mu, which the caller has locked.
func (m *Mem) callLocked(op Op, path string, changes bool, do callBody) error {
	m.called++
	c := Call{N: m.called, Op: op, Path: path}
	c.Err = do(&c, m.strike(op, path))
	if len(m.calls) == 2*callsKept {
		m.calls = append(m.calls[:0], m.calls[callsKept:]...)
	}
	m.calls = append(m.calls, c)
	after := m.after
	m.mu.Unlock()
	if after != nil && changes {
		after(c)
	}
	return c.Err
}
