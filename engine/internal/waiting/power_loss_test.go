package waiting

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func openIn(t *testing.T, m *vfstest.Mem) (*Store, vfs.Dir) {
	t.Helper()
	dir, err := m.MakeDir("/waiting", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

// TestPowerLossAfterKill kills a process that has saved a range and not synced it. The next process
// opens the store, and its checkpoint counts the range as settled. Then there is a power loss,
// which must not lose the range.
func TestPowerLossAfterKill(t *testing.T) {
	m := vfstest.New()
	killed, _ := openIn(t, m)
	killed.Hold([]Range{{Part: part(0), Range: span(0, 10), Records: 3, Bytes: 30}},
		wait(time.Hour, 1))
	if err := killed.Save(); err != nil {
		t.Fatal(err)
	}
	next, _ := openIn(t, m)
	if n, _, _ := next.Held(); n != 1 {
		t.Fatalf("after the kill, %d ranges wait, want 1", n)
	}
	if _, err := next.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, names := range []vfstest.Names{vfstest.NamesNone, vfstest.NamesAll} {
		left, _ := openIn(t, m.Crash(vfstest.DataNone, names, 1))
		if n, _, _ := left.Held(); n != 1 {
			t.Errorf("after a power loss (names %s), %d ranges wait, want 1", names, n)
		}
	}
}
