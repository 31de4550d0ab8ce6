package vfstest

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// Data is the treatment of unsynced bytes in a crash.
type Data string

// The values of Data. Bytes that were synced survive with all of them.
const (
	DataAll    Data = "kept"   // all survive: only the process died
	DataNone   Data = "lost"   // all are lost
	DataPrefix Data = "prefix" // the first writes of each file survive, the last perhaps in part
	// DataTorn means that the last unsynced write of each file was torn by the crash. All bytes
	// survive, except for the second half of the bytes that this write wrote to its last page.
	// These are replaced by the bytes that were on the disk before, or by zeros.
	DataTorn Data = "torn"
)

// Names selects the changes of names that survive a crash. A change is the creation, rename or
// removal of a file since its directory was synced.
type Names string

// The values of Names. A rename within a directory survives completely or not at all. After a
// rename between two directories, both names may survive. If the old name was durable, at least one
// of them survives.
const (
	NamesAll  Names = "kept"
	NamesNone Names = "lost"
	NamesSome Names = "some" // each change survives or not, independently
)

// Crash is a file system after a crash.
type Crash struct {
	FS    *Mem // nothing is open in it, no lock is held, and all its data is durable
	Call  Call // the last call before the crash
	Data  Data
	Names Names
	Seed  uint64
}

// String returns the parameters that reproduce this crash.
func (c Crash) String() string {
	return fmt.Sprintf("crash after %v; data %s, names %s, seed %d", c.Call, c.Data,
		c.Names, c.Seed)
}

// Crashes runs the workload once on an empty file system. After each call that may have changed
// something, it yields file systems that a crash at this moment can leave. The first file system is
// the state after a kill of the process (DataAll, NamesAll). The others are states after a power
// loss, one for each combination of a value of [Data] other than DataAll with a value of [Names].
// If all bytes are synced, DataNone is the only value of Data. If all names are synced, NamesNone
// is the only value of Names.
//
// The loop body runs inside the call, so it sees the workload's variables as they were at the
// crash. The workload must make its calls on its own goroutine, and the body must not use locks
// that the workload may hold. After a break the workload runs to its end.
func Crashes(t testing.TB, seed uint64, workload func(vfs.FS)) iter.Seq[Crash] {
	t.Helper()
	return CrashesFrom(t, seed, New(), func(m *Mem) { workload(m) })
}

// CrashesFrom is [Crashes] on an existing file system, for example one left by a crash.
func CrashesFrom(t testing.TB, seed uint64, m *Mem, workload func(*Mem)) iter.Seq[Crash] {
	t.Helper()
	return func(yield func(Crash) bool) {
		going := true
		m.Watch(func(c Call) {
			if !going {
				return
			}
			for crash := range m.crashes(c, seed) {
				if going = yield(crash); !going {
					return
				}
			}
		})
		defer m.Watch(nil)
		workload(m)
	}
}

// Watch sets a function that m calls for each call that may have changed something. It runs on the
// goroutine of that call, when the change is done and before the call returns. Use Watch for
// concurrent workloads, together with [Mem.Crash]. Watch(nil) removes the function.
func (m *Mem) Watch(after func(Call)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = after
}

func (m *Mem) crashes(c Call, seed uint64) iter.Seq[Crash] {
	return func(yield func(Crash) bool) {
		m.mu.Lock()
		names := len(m.names) > 0
		data := m.unsynced()
		m.mu.Unlock()
		datas, nameses := []Data{DataNone}, []Names{NamesNone}
		if data {
			datas = []Data{DataNone, DataPrefix, DataTorn}
		}
		if names {
			nameses = []Names{NamesNone, NamesSome, NamesAll}
		}
		if !yield(Crash{FS: m.Crash(DataAll, NamesAll, seed), Call: c, Data: DataAll,
			Names: NamesAll, Seed: seed}) {
			return
		}
		for _, d := range datas {
			for _, n := range nameses {
				if !yield(Crash{FS: m.Crash(d, n, seed+uint64(c.N)), Call: c, Data: d, Names: n,
					Seed: seed}) {
					return
				}
			}
		}
	}
}

// unsynced reports whether any file has unsynced bytes, including removed and renamed files.
func (m *Mem) unsynced() bool {
	found := false
	m.walk(func(n *node) { found = found || len(n.writes) > 0 })
	return found
}

// walk visits every file and directory that may exist after a crash, each once.
func (m *Mem) walk(visit func(*node)) {
	done := make(map[*node]bool)
	var visitOnce func(n *node)
	visitOnce = func(n *node) {
		if done[n] {
			return
		}
		done[n] = true
		visit(n)
		for _, child := range n.kept {
			visitOnce(child)
		}
		for _, child := range n.seen {
			visitOnce(child)
		}
	}
	visitOnce(m.root)
	for _, op := range m.names {
		for i := range op.changes {
			visitOnce(op.changes[i].node)
		}
	}
}

// Crash returns the file system after a crash at this moment. The Mem itself is unchanged. It is
// safe for concurrent use.
func (m *Mem) Crash(data Data, names Names, seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := make(map[*node]map[string]*node) // of directories that differ from kept
	of := func(d *node) map[string]*node {
		if entries[d] == nil {
			entries[d] = maps.Clone(d.kept)
		}
		return entries[d]
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, op := range m.names {
		left := op.survives(names, rng)
		for i := range left {
			left[i].apply(of(left[i].dir))
		}
	}
	clone := &Mem{nextIno: m.nextIno, ticks: m.ticks, now: m.now}
	copies := make(map[*node]*node)
	var copyOf func(n *node) *node
	copyOf = func(n *node) *node {
		if c := copies[n]; c != nil {
			c.links++
			return c
		}
		c := &node{ino: n.ino, mode: n.mode, links: 1, born: n.born, changed: n.changed,
			target: n.target}
		copies[n] = c
		if n.mode.IsDir() {
			c.seen, c.kept = make(map[string]*node), make(map[string]*node)
			list := n.kept
			if e := entries[n]; e != nil {
				list = e
			}
			for name, child := range list {
				k := copyOf(child)
				c.seen[name], c.kept[name] = k, k
			}
		} else {
			c.data = n.crashed(data, rand.New(rand.NewPCG(seed, n.ino)))
			c.disk = c.data.share()
		}
		return c
	}
	clone.root = copyOf(m.root)
	return clone
}

// survives returns the changes of the operation that survive a crash: none, the first one or all.
func (o *nameOp) survives(names Names, rng *rand.Rand) []change {
	switch names {
	case NamesNone:
		return nil
	case NamesSome:
		if rng.IntN(2) == 0 {
			return nil
		}
		if o.between() && rng.IntN(2) == 0 {
			return o.changes[:1]
		}
	}
	return o.changes
}

// page is the unit in which a system writes bytes to the disk.
const page = 4096

// crashed returns a file's bytes after a crash.
func (n *node) crashed(data Data, rng *rand.Rand) content {
	switch {
	case len(n.writes) == 0 && data != DataAll, data == DataNone:
		return n.disk.share()
	case data == DataAll:
		return n.data.share()
	}
	c := n.disk.share()
	if data == DataTorn {
		for i := range n.writes {
			n.writes[i].apply(&c)
		}
		n.tear(&c, rng)
		return c
	}
	total := 0
	for i := range n.writes {
		total += max(1, len(n.writes[i].data))
	}
	left := rng.IntN(total + 1)
	for _, w := range n.writes {
		if left == 0 {
			break
		}
		if w.size < 0 && len(w.data) > left {
			w.data = w.data[:left]
		}
		left -= max(1, len(w.data))
		w.apply(&c)
	}
	return c
}

// tear undoes a part of the last unsynced write. It takes the bytes that the write wrote to its
// last page, and replaces the second half of these bytes by the bytes in n.disk, or by zeros.
func (n *node) tear(c *content, rng *rand.Rand) {
	last := n.writes[len(n.writes)-1]
	if last.size >= 0 || len(last.data) == 0 {
		return
	}
	end := last.off + len(last.data)
	start := max(last.off, (end-1)/page*page)
	middle := start + (end-start)/2
	old := make([]byte, end-middle)
	if rng.IntN(2) == 0 && middle < len(n.disk.b) {
		copy(old, n.disk.b[middle:])
	}
	c.write(middle, old)
}
