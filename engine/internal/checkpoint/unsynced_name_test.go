package checkpoint

import (
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// killAfter calls do, and kills it after its first call of the given kind: the call has taken
// effect, and no call follows it.
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
// Sync, a power loss must not bring back the state without this log.
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
