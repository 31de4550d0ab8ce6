package vfstest

import (
	"fmt"
	"strings"
)

// Op is a kind of call.
type Op string

// The kinds of calls. What only looks (OpStat, OpList, OpRead, OpOpenDir) makes no crash clone.
const (
	OpOpen     Op = "open" // Open and OpenFile
	OpRead     Op = "read" // Read and ReadAt
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync" // of a file
	OpSyncDir  Op = "sync directory"
	OpRename   Op = "rename" // RenameNew too
	OpRemove   Op = "remove"
	OpMakeDir  Op = "make directory"
	OpOpenDir  Op = "open directory"
	OpStat     Op = "stat"
	OpList     Op = "list"
	OpLock     Op = "lock"
)

// Call is one call through vfs.
type Call struct {
	N    int // the first is 1
	Op   Op
	Path string // absolute; of a rename: the new one; of an open file: its name now
	From string // of a rename: the old path
	Size int    // bytes read or written; of a truncate: the new length
	Err  error
}

// String gives number, kind, path and result.
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
	Op   Op     // calls of this kind; "": of every kind
	Path string // only those whose path contains it; "": all
	Nth  int    // the nth of them from now on; 0 means 1
	// Lasting makes every one from the nth on fail; else the nth alone does.
	Lasting bool
	Err     error // what they return, wrapped with the path
	Short   int   // of a write: how many bytes it writes before it fails, at most all but one

	seen, struck int
}

// Fail arms a fault. A failed call does nothing, but for a write (Short) and a sync, which loses
// for good what was not synced: it stays visible, and no later sync saves it, as Linux does.
func (m *Mem) Fail(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// Heal disarms all faults and returns how often they struck.
func (m *Mem) Heal() (struck int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.faults {
		struck += f.struck
	}
	m.faults = nil
	return struck
}

// strike returns the fault that hits this call, if any.
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

// callsKept is how many calls are remembered at least; twice as many at most.
const callsKept = 1 << 16

// Calls returns the calls so far, the oldest first; of very many, the last ones.
func (m *Mem) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Call(nil), m.calls...)
}

// call does one call under the lock, unless a fault hits it: do sees the fault and may do a part;
// its error, or else the fault's, is the call's.
func (m *Mem) call(op Op, path string, changes bool, do func(c *Call, f *Fault) error) error {
	return m.callWith(op, path, changes, func(c *Call, f *Fault) error {
		if f != nil {
			return pathError(string(op), path, f.Err)
		}
		return do(c, f)
	})
}

func (m *Mem) callWith(op Op, path string, changes bool, do func(c *Call, f *Fault) error) error {
	m.mu.Lock()
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
