package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

func dirOf(t testing.TB, path string) vfs.Dir {
	t.Helper()
	d, err := vfs.OS().OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(dirOf(t, path), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func part(n int) stream.Partition {
	return stream.Partition{ID: fmt.Sprintf("part-%d", n), Name: fmt.Sprintf("file %d", n)}
}

func span(from, to int64) stream.Range {
	return stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}}
}

func wait(after time.Duration, attempts uint32) flow.Wait {
	return flow.Wait{After: after, History: flow.History{
		Attempts: attempts, Failures: attempts / 2, Suspect: attempts%3 == 0,
		Elapsed: time.Duration(attempts) * time.Second,
		Retry:   backoff.State{N: attempts, Step: 1, Prev: after, Slept: 2 * after},
	}}
}

// cells is a simple model of the store. It has an element for each position of each partition: the
// history of the waiting range that covers the position, if any.
type cells map[[2]int64]uint32

// content returns the contents of a store as cells, one for each waiting position. It checks that
// the sums and the orders in the store agree with its ranges.
func content(t *testing.T, s *Store, parts int) cells {
	t.Helper()
	out := cells{}
	var all, held totals
	for n := range parts {
		k, ok := s.x.byID[part(n).ID]
		if !ok {
			continue
		}
		last := stream.Position{Num: -1}
		count := 0
		for i := range s.x.parts[k].order.all {
			e := s.x.at(i)
			r := e.rangeOf()
			if r.From.Compare(last) < 0 || r.From.Compare(r.To) >= 0 {
				t.Fatalf("range %v of partition %d follows %v", r, n, last)
			}
			last = r.To
			count++
			all.add(e, 1)
			if e.phase == isHeld {
				held.add(e, 1)
			}
			for at := r.From.Num; at < r.To.Num; at++ {
				out[[2]int64{int64(n), at}] = e.attempts
			}
		}
		if count != s.x.parts[k].order.n {
			t.Fatalf("partition %d has %d ranges and counts %d", n, count, s.x.parts[k].order.n)
		}
	}
	if all != s.x.all || held != s.x.held {
		t.Fatalf("the sums are %+v and %+v, want %+v and %+v", s.x.all, s.x.held, all, held)
	}
	return out
}

// TestAgainstCells performs random waits, settlements and restarts on a store, and compares the
// store with a simple model (cells).
func TestAgainstCells(t *testing.T) {
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		s, want := open(t, dir), cells{}
		const parts, size = 3, 60
		for step := range 300 {
			n, from := rnd.IntN(parts), rnd.Int64N(size)
			r := span(from, from+1+rnd.Int64N(8))
			switch op := rnd.IntN(10); {
			case op < 5:
				attempts := uint32(step + 1)
				ranges := []Range{{Part: part(n), Range: r, Records: 3, Bytes: 30}}
				if op < 2 {
					s.Note(ranges, wait(time.Hour, attempts))
				} else {
					s.Hold(ranges, wait(time.Hour, attempts))
				}
				for at := r.From.Num; at < r.To.Num; at++ {
					want[[2]int64{int64(n), at}] = attempts
				}
			case op < 8:
				s.Settled(part(n).ID, r, 1)
				for at := r.From.Num; at < r.To.Num; at++ {
					delete(want, [2]int64{int64(n), at})
				}
			case op < 9:
				if _, err := s.Sync(); err != nil {
					t.Fatal(err)
				}
			default:
				if err := s.Save(); err != nil {
					t.Fatal(err)
				}
				_ = s.Close()
				s = open(t, dir)
			}
			got := content(t, s, parts)
			if len(got) != len(want) {
				t.Fatalf("seed %d, step %d: %d positions wait, want %d", seed, step, len(got),
					len(want))
			}
			for at, attempts := range want {
				if got[at] != attempts {
					t.Fatalf("seed %d, step %d: position %v has %d attempts, want %d", seed, step,
						at, got[at], attempts)
				}
			}
		}
	}
}

// TestRestartKeepsDueTimes checks that, after a restart, a range waits only for the rest of its
// wait, and keeps its history.
func TestRestartKeepsDueTimes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := dirOf(t, dir)
		s, err := Open(d, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := wait(time.Minute, 4)
		s.Hold([]Range{{Part: part(1), Range: span(10, 20), Records: 5, Bytes: 10}}, w)
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		time.Sleep(20 * time.Second)
		if s, err = Open(d, Options{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ranges, h, err := s.Next(t.Context(), false, 100, 100)
		if err != nil || len(ranges) != 1 || h != w.History || ranges[0].Records != 5 ||
			ranges[0].Part != part(1) {
			t.Fatalf("got %+v %+v %v, want the range with history %+v", ranges, h, err, w.History)
		}
		if left := time.Since(began); left != 40*time.Second {
			t.Errorf("it was due %v after the restart, want 40s", left)
		}
		_ = s.Close()
	})
}

// TestClocks checks the clock of due times. Within one boot of the system, it is the time since the
// boot, and otherwise the wall clock. A clock that is set back does not prolong a wait.
func TestClocks(t *testing.T) {
	const hour = int64(time.Hour)
	for _, c := range []struct {
		name string
		boot string
		due  func(wall, boot int64) due
		want time.Duration
	}{
		{"same boot, wall clock set forward", "a", func(w, b int64) due {
			return due{w - hour, b + int64(time.Minute)}
		}, time.Minute},
		{"same boot, wall clock set back", "a", func(w, b int64) due {
			return due{w + 9*hour, b + int64(time.Minute)}
		}, time.Minute},
		{"other boot", "b", func(w, b int64) due {
			return due{w + int64(time.Minute), b - hour}
		}, time.Minute},
		{"other boot, wall clock set back", "b", func(w, b int64) due {
			return due{w + 9*hour, b}
		}, 2 * time.Minute},
		{"overdue", "b", func(w, b int64) due { return due{w - hour, b} }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Store{o: Options{Boot: "a", SinceBoot: func() time.Duration {
					return 5 * time.Hour
				}}, start: time.Now()}
				d := c.due(time.Now().UnixNano(), 5*hour)
				if got := s.dueOf(d, c.boot, 2*time.Minute) - s.now(); got != c.want {
					t.Errorf("%v are left, want %v", got, c.want)
				}
			})
		})
	}
}

// TestBatchStaysTogether checks that Next returns the ranges of one batch together, as far as the
// limits allow, and that it does not mix suspects with other batches.
func TestBatchStaysTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(dirOf(t, t.TempDir()), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var batch []Range
		for n := range int64(5) {
			batch = append(batch,
				Range{Part: part(0), Range: span(10*n, 10*n+3), Records: 2, Bytes: 10})
		}
		s.Hold(batch, wait(time.Second, 1))
		s.Hold([]Range{{Part: part(0), Range: span(100, 110), Records: 2, Bytes: 10}},
			wait(time.Second, 2))
		s.Hold([]Range{{Part: part(0), Range: span(200, 210), Records: 2, Bytes: 10}},
			wait(time.Second, 3))
		var got []int
		for range 3 {
			ranges, _, err := s.Next(t.Context(), false, 6, 1000)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, len(ranges))
		}
		if !slices.Equal(got, []int{3, 2, 1}) {
			t.Errorf("batches of %v ranges, want 3, 2 and 1", got)
		}
		if ranges, h, err := s.Next(t.Context(), true, 6, 1000); err != nil || len(ranges) != 1 ||
			!h.Suspect {
			t.Errorf("suspects: %v %v %v", ranges, h, err)
		}
		s.Stop()
		if _, _, err := s.Next(t.Context(), false, 6, 1000); err != io.EOF {
			t.Errorf("a stopped store says %v, want EOF", err)
		}
		_ = s.Close()
	})
}

// TestTornAndDamaged checks that Open ignores an unfinished record at the end of the journal, and
// refuses a journal with damage before the end.
func TestTornAndDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for n := range int64(20) {
		s.Hold([]Range{{Part: part(0), Range: span(n, n+1), Records: 1, Bytes: 1}},
			wait(time.Hour, uint32(n+1)))
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	path := filepath.Join(dir, segmentName(1))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole) - 1; cut > len(whole)-80; cut-- {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dirOf(t, dir), Options{})
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		if n, _, _ := s.Held(); n < 17 || n > 19 {
			t.Fatalf("cut at %d of %d: %d ranges, want 17 to 19", cut, len(whole), n)
		}
		_ = s.Close()
	}
	for at := 8; at < len(whole)-100; at += 13 {
		bad := slices.Clone(whole)
		bad[at] ^= 0x55
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dirOf(t, dir), Options{}); err == nil {
			t.Fatalf("a file with byte %d of %d changed was taken", at, len(whole))
		}
		if now, _ := os.ReadFile(path); !slices.Equal(now, bad) {
			t.Fatal("a refused file was changed")
		}
	}
}

// TestFilesStayInProportion checks that the files stay bounded although ranges wait again and
// again. The oldest segments are then removed, which must lose no range.
func TestFilesStayInProportion(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const ranges = 3000
	attempts := uint32(0)
	for range 200 {
		attempts++
		for n := range int64(ranges) {
			if n < 500 && attempts > 1 {
				continue // these have waited since the beginning
			}
			s.Hold([]Range{{Part: part(int(n % 7)), Range: span(n, n+1), Records: 1, Bytes: 1}},
				wait(time.Hour, attempts))
		}
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if s.j.segments[0] == 1 || s.j.total() > 6*segmentSize {
		t.Errorf("%d bytes in segments %v", s.j.total(), s.j.segments)
	}
	_ = s.Close()
	s = open(t, dir)
	for n := range int64(ranges) {
		k := s.x.byID[part(int(n%7)).ID]
		i, ok := s.x.exact(s.x.parts[k], span(n, n+1))
		want := attempts
		if n < 500 {
			want = 1
		}
		if !ok || s.x.at(i).attempts != want {
			t.Fatalf("range %d after a restart: %v, want %d attempts", n, ok, want)
		}
	}
}

// TestMemoryOfRanges checks that a range takes at most 100 bytes.
func TestMemoryOfRanges(t *testing.T) {
	const n = 1 << 20
	heapOf := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heapOf()
	s := &Store{start: time.Now(), x: newIndex(), changed: make(chan struct{})}
	one := make([]Range, 1)
	for i := range int64(n) {
		one[0] = Range{Part: part(0), Range: span(100*i, 100*i+50), Records: 1, Bytes: 50}
		s.Hold(one, wait(time.Hour+time.Duration(i*7919%n)*time.Millisecond, 1))
		s.x.dirty = s.x.dirty[:0]
	}
	if each := float64(heapOf()-before) / n; each > 100 {
		t.Errorf("a range takes %.1f bytes, want at most 100", each)
	} else {
		t.Logf("%.1f bytes each", each)
	}
	runtime.KeepAlive(s)
}

// TestHandsOverOnce checks that Sync returns each durable range once, and returns no range that was
// settled before.
func TestHandsOverOnce(t *testing.T) {
	s := open(t, t.TempDir())
	hold := func(from, to int64) {
		s.Hold([]Range{{Part: part(0), Range: span(from, to), Records: 1, Bytes: 1}},
			wait(time.Hour, 1))
	}
	hold(0, 10)
	hold(20, 30)
	s.Settled(part(0).ID, span(0, 10), 1)
	handed, err := s.Sync()
	if err != nil || len(handed) != 1 || handed[0].Range != span(20, 30) {
		t.Fatalf("handed over %v, %v; want the second range", handed, err)
	}
	hold(20, 30)
	if handed, err = s.Sync(); err != nil || len(handed) != 0 {
		t.Errorf("handed over again: %v, %v", handed, err)
	}
	if at, ok := s.First(part(0).ID); !ok || at.Num != 20 {
		t.Errorf("the first range begins at %v, %v; want 20", at, ok)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	s.Hold([]Range{{Part: part(0), Range: span(0, 1), Records: 1, Bytes: 1}}, wait(0, 1))
	if _, _, err := s.Next(ctx, false, 1, 1); !errors.Is(err, why) {
		t.Errorf("Next says %v, want %v", err, why)
	}
	if n, _, _ := s.Held(); n != 1 {
		t.Errorf("%d ranges are held, want 1", n)
	}
}

// TestPartitionsAreReleased checks that the store keeps no partition without waiting ranges, and
// that a restart finds the waiting ranges of partitions whose numbers were used before.
func TestPartitionsAreReleased(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const partitions, waiting = 1000, 3 // at most `waiting` at a time
	check := func(when string, most int) {
		t.Helper()
		used := len(s.x.parts) - len(s.x.unused)
		if used > most || len(s.x.byID) > most || len(s.j.numbers) > most {
			t.Fatalf("%s: %d partitions, %d ids, %d numbers in the segment, want at most %d", when,
				len(s.x.parts)-len(s.x.unused), len(s.x.byID), len(s.j.numbers), most)
		}
	}
	for n := range partitions {
		s.Hold([]Range{{Part: part(n), Range: span(0, 9), Records: 1, Bytes: 1}},
			wait(time.Hour, uint32(n+1)))
		if n >= waiting {
			s.Settled(part(n-waiting).ID, span(0, 9), 1)
		}
		if n%2 == 0 {
			if _, err := s.Sync(); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint("partition ", n), waiting+2)
		}
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second restart reads the files after the first one
		_ = s.Close()
		s = open(t, dir)
		check("after a restart", waiting)
		for n := range partitions {
			at, ok := s.First(part(n).ID)
			if ok != (n >= partitions-waiting) || at != (stream.Position{}) {
				t.Fatalf("after a restart, partition %d waits: %v", n, ok)
			}
			if i, ok := s.x.byID[part(n).ID]; ok {
				if e, _ := s.x.exact(s.x.parts[i], span(0, 9)); s.x.at(e).attempts != uint32(n+1) {
					t.Fatalf("partition %d has %d attempts", n, s.x.at(e).attempts)
				}
			}
		}
	}
}
