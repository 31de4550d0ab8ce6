package checkpoint

import (
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// killAfter calls the function do, and simulates a kill after its first call of the file system
// with operation op. This call takes effect, and no further call does.
func killAfter(t *testing.T, m *vfstest.Mem, op vfstest.Op, do func()) {
	t.Helper()
	killed := false
	func() {
		defer func() { _ = recover() }()
		defer m.Watch(nil)
		m.Watch(func(c vfstest.Call) {
			if c.Op == op {
				killed = true
				panic("killed")
			}
		})
		do()
	}()
	if !killed {
		t.Fatalf("there was no call of %s", op)
	}
}

// TestOpenSyncsName opens a log whose writer was killed before it synced the directory. After a
// Sync of the new store, the log must survive a power loss: the directory must not return to its
// state without the log.
func TestOpenSyncsName(t *testing.T) {
	m := vfstest.New()
	dir := stateDir(t, m)
	killAfter(t, m, vfstest.OpRename, func() { mustOpen(t, dir, Options{}) })
	s, r := mustOpen(t, stateDir(t, m), Options{})
	if r.Fresh {
		t.Fatal("the killed process has left no log")
	}
	want := stream.Mark{Part: stream.Partition{ID: "p"}, Watermark: stream.Position{Num: 7}}
	must(t, s.Append("a/b", []stream.Mark{want}, nil))
	must(t, s.Sync())
	left, _ := mustOpen(t, stateDir(t, m.Crash(vfstest.DataNone, vfstest.NamesNone, 1)), Options{})
	if got, ok := left.Mark("a/b", "p"); !ok || got.Watermark != want.Watermark {
		t.Errorf("after a power loss the watermark is %v (%v), want %v", got.Watermark, ok,
			want.Watermark)
	}
}
