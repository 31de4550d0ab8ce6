package waiting

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/framelog"
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

func holdOne(s *Store, n int, from int64) {
	s.Hold([]Range{{Part: part(n), Range: span(from, from+1), Records: 1, Bytes: 1}},
		wait(time.Hour, 1))
}

// TestPowerLossAfterRemovals settles a range, and lets Sync remove the two segments that record its
// wait and its settlement. The range must not wait again after a power loss, even if the system has
// written these removals in another order.
func TestPowerLossAfterRemovals(t *testing.T) {
	m := vfstest.New()
	for n := range maxSmall + 4 { // each run begins a segment
		s, _ := openIn(t, m)
		if n == 1 {
			s.Settled(part(0).ID, span(0, 1), 1)
		} else {
			holdOne(s, min(n, 1), int64(n))
		}
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := openIn(t, m)
	for range 4 {
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(20) {
			left, _ := openIn(t, m.Crash(vfstest.DataNone, vfstest.NamesSome, seed))
			if n, _, _ := left.Held(); n != maxSmall+2 || len(left.Ranges(part(0).ID)) > 0 {
				t.Fatalf("%d ranges wait, of the settled one %v; want %d and none", n,
					left.Ranges(part(0).ID), maxSmall+2)
			}
		}
	}
	if s.j.segments[0] < 3 {
		t.Errorf("segment %d was not removed", s.j.segments[0])
	}
}

// TestPowerLossAfterFailedWrite fails a write in the middle of an entry. The next entries are
// written to a new segment. A power loss then leaves no part of the failed entry.
func TestPowerLossAfterFailedWrite(t *testing.T) {
	m := vfstest.New()
	s, _ := openIn(t, m)
	holdOne(s, 0, 0)
	if _, err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	m.Fail(vfstest.Fault{Op: vfstest.OpWrite, Path: "/waiting/", Err: full, Short: 20})
	holdOne(s, 0, 1)
	if _, err := s.Sync(); !errors.Is(err, full) {
		t.Fatalf("error %v, want %v", err, full)
	}
	m.Heal()
	if _, err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		left, _ := openIn(t, m.Crash(vfstest.DataPrefix, vfstest.NamesAll, seed))
		if n, _, _ := left.Held(); n != 2 {
			t.Errorf("seed %d: %d ranges wait, want 2", seed, n)
		}
	}
}

// TestSegmentWithoutFrames opens a store with a last segment that has only a header. If the header
// is incomplete, because a crash has interrupted its write, the segment must be removed. If it is
// complete but belongs to another version or segment, Open must return an error.
func TestSegmentWithoutFrames(t *testing.T) {
	for name, c := range map[string]struct {
		head    []byte
		removed bool
	}{
		"zero bytes": {make([]byte, framelog.HeaderSize), true},
		"no checksum": {
			append(framelog.AppendHeader(nil, magic, version, 2)[:20], 0, 0, 0, 0), true},
		"newer version":  {framelog.AppendHeader(nil, magic, version+1, 2), false},
		"another number": {framelog.AppendHeader(nil, magic, version, 3), false},
	} {
		m := vfstest.New()
		s, dir := openIn(t, m)
		holdOne(s, 0, 0)
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		path := "/waiting/" + segmentName(2)
		if err := m.WriteFile(path, c.head); err != nil {
			t.Fatal(err)
		}
		next, err := Open(dir, Options{})
		if _, gone := m.ReadFile(path); errors.Is(gone, fs.ErrNotExist) != c.removed {
			t.Errorf("%s: reading the segment: %v", name, gone)
		}
		if (err == nil) != c.removed {
			t.Errorf("%s: Open returned %v", name, err)
		}
		if err != nil {
			continue
		}
		if n, _, _ := next.Held(); n != 1 {
			t.Errorf("%s: %d ranges wait, want 1", name, n)
		}
		_ = next.Close()
	}
}
