package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// promise holds the guarantees that a File has given so far.
type promise struct {
	marks []mark // in the order of their saves; the first is the empty mark
	least int    // index of the oldest mark allowed after a crash
	begun int    // index of the newest mark allowed
}

func promised(rnd *rand.Rand, saves int) *promise {
	p := &promise{marks: []mark{{}}}
	for range saves {
		p.marks = append(p.marks, anyMark(rnd, 300)) // some take several pages
	}
	return p
}

// run saves the marks that have not been saved yet. It stops at the first error.
func (p *promise) run(t *testing.T, m vfs.FS) error {
	dir, err := m.MakeDir("/state", 0o700)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := OpenIn(m, "/state/mark")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := f.Load(t.Context()); err != nil {
		return err
	}
	for _, next := range p.marks[p.begun+1:] {
		p.begun++
		if err := f.Save(t.Context(), next.watermark, next.above); err != nil {
			return err
		}
		p.least = p.begun
	}
	return nil
}

// kept checks that the file system left by a crash holds one of the marks (saved progress) that p
// allows: the last saved one, or the one that was being saved. It returns the index of this mark.
func (p *promise) kept(t *testing.T, what fmt.Stringer, left *vfstest.Mem) int {
	t.Helper()
	// the crash may have come before the directory was created
	dir, err := left.MakeDir("/state", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := OpenIn(left, "/state/mark")
	if err != nil {
		t.Fatalf("%v: %v", what, err)
	}
	defer f.Close()
	watermark, above, err := f.Load(t.Context())
	if err != nil {
		t.Fatalf("%v: %v", what, err)
	}
	for i := p.begun; i >= p.least; i-- {
		if p.marks[i].watermark == watermark && slices.Equal(p.marks[i].above, above) {
			return i
		}
	}
	t.Fatalf("%v: it holds %v and %d ranges, not one of the marks %d to %d", what, watermark,
		len(above), p.least, p.begun)
	return 0
}

// TestEveryCrash checks crashes at every call of the file system, with any loss of unsynced data.
// Afterwards the file must have the mark (the progress) that was saved last, or the one that was
// being saved. The next program, which crashes in turn, loses nothing either.
func TestEveryCrash(t *testing.T) {
	crashes, second := 0, 0
	for seed := range uint64(3) {
		p := promised(rand.New(rand.NewPCG(seed, 1)), 4)
		for crash := range vfstest.Crashes(t, seed, func(system vfs.FS) {
			if err := p.run(t, system); err != nil {
				t.Fatal(err)
			}
		}) {
			crashes++
			// Load makes the returned mark durable: the second life starts from it
			again := &promise{marks: p.marks, least: p.kept(t, crash, crash.FS), begun: p.begun}
			if crashes%10 != 0 {
				continue
			}
			again.begun = again.least
			for next := range vfstest.CrashesFrom(t, seed+1, crash.FS, func(m *vfstest.Mem) {
				if err := again.run(t, m); err != nil {
					t.Fatal(err)
				}
			}) {
				second++
				again.kept(t, next, next.FS)
			}
		}
	}
	if crashes < 200 || second < 200 {
		t.Errorf("%d crashes, %d after them: the workload has shrunk", crashes, second)
	}
}

// TestEveryFault checks that no saved progress is lost if any call of the file system fails, once
// or permanently, and the program then crashes. The error must be returned. After the fault a new
// File works.
func TestEveryFault(t *testing.T) {
	struck := 0
	for _, op := range []vfstest.Op{
		vfstest.OpOpen, vfstest.OpRead, vfstest.OpWrite, vfstest.OpSync, vfstest.OpSyncDir,
		vfstest.OpRename,
		vfstest.OpRemove, vfstest.OpLock,
	} {
		for _, lasting := range []bool{false, true} {
			for nth := 1; ; nth++ {
				m := vfstest.New()
				p := promised(rand.New(rand.NewPCG(uint64(nth), 2)), 5)
				m.Fail(vfstest.Fault{Op: op, Path: "/state/mark", Nth: nth, Lasting: lasting,
					Err: syscall.EIO, Short: 30})
				if op == vfstest.OpSyncDir {
					m.Heal()
					m.Fail(vfstest.Fault{Op: op, Path: "/state", Nth: nth, Lasting: lasting,
						Err: syscall.EIO})
				}
				err := p.run(t, m)
				hit := m.Heal() > 0
				if hit != (err != nil) {
					t.Fatalf("%s %d fails: hit %v, error %v", op, nth, hit, err)
				}
				if !hit {
					break
				}
				struck++
				what := vfstest.Call{N: nth, Op: op, Path: "the one that failed"}
				for _, data := range []vfstest.Data{vfstest.DataAll, vfstest.DataNone,
					vfstest.DataPrefix, vfstest.DataTorn} {
					for _, names := range []vfstest.Names{vfstest.NamesAll, vfstest.NamesNone,
						vfstest.NamesSome} {
						p.kept(t, what, m.Crash(data, names, uint64(nth)))
					}
				}
				p.begun = p.kept(t, what, m)
				if err := p.run(t, m); err != nil {
					t.Fatalf("%s %d failed; then: %v", op, nth, err)
				}
				p.kept(t, what, m.Crash(vfstest.DataNone, vfstest.NamesNone, 1))
			}
		}
	}
	if struck < 40 {
		t.Errorf("%d faults struck: the workload has shrunk", struck)
	}
}

// TestSaveAfterFailure checks that a second Save of the same File succeeds after the first one has
// failed, unless the directory could not be synced.
func TestSaveAfterFailure(t *testing.T) {
	for _, c := range []struct {
		fault vfstest.Fault
		over  bool
	}{
		{vfstest.Fault{Op: vfstest.OpOpen, Path: "mark.new"}, false},
		{vfstest.Fault{Op: vfstest.OpWrite, Short: 10}, false},
		{vfstest.Fault{Op: vfstest.OpSync}, false},
		{vfstest.Fault{Op: vfstest.OpRename}, false},
		{vfstest.Fault{Op: vfstest.OpSyncDir}, true},
	} {
		m := vfstest.New()
		if err := m.WriteFile("/state/mark", []byte(goldens[0].text)); err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, m, "/state/mark")
		c.fault.Err = syscall.ENOSPC
		m.Fail(c.fault)
		for try := range 2 {
			if err := f.Save(t.Context(), at(20), nil); (err != nil) != (try == 0 || c.over) {
				t.Errorf("%s fails, then Save %d: %v", c.fault.Op, try, err)
			}
		}
		if !c.over {
			mustHold(t, mustOpen(t, m.Crash(vfstest.DataNone, vfstest.NamesNone, 1), "/state/mark"),
				mark{watermark: at(20)})
		}
	}
}

// TestLoadMakesDurable checks a kill during Save, between the rename and the sync of the directory.
// If the next program has loaded the new progress, this progress survives a power loss.
func TestLoadMakesDurable(t *testing.T) {
	m := vfstest.New()
	for name, g := range map[string]int{"/state/mark": 0, "/state/mark.new": 1} {
		if err := m.WriteFile(name, []byte(goldens[g].text)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := m.OpenDir("/state")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.Rename("mark.new", dir, "mark"); err != nil {
		t.Fatal(err)
	}
	lost := func() *File {
		return mustOpen(t, m.Crash(vfstest.DataNone, vfstest.NamesNone, 1), "/state/mark")
	}
	mustHold(t, lost(), goldens[0].mark)
	mustHold(t, mustOpen(t, m, "/state/mark"), goldens[1].mark)
	mustHold(t, lost(), goldens[1].mark)
}
