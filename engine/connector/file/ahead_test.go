package file

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestAhead checks that a fast file always has reserved space, at most aheadMax behind its end, and
// that a slow file reserves none.
func TestAhead(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	t.Run("slow", func(t *testing.T) {
		var a ahead
		for i := range int64(1000) {
			now := begin.Add(time.Duration(i) * 100 * time.Millisecond)
			if _, n := a.want(now, i<<18, (i+1)<<18); n != 0 {
				t.Fatalf("2.5 MB/s: %d bytes of room are wanted at %v", n, now.Sub(begin))
			}
		}
	})
	t.Run("quick", func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		var a ahead
		var end, asked, calls int64
		for i := range int64(4000) {
			from := end
			end += r.Int64N(1 << 20)
			at, n := a.want(begin.Add(time.Duration(i)*time.Millisecond), from, end)
			if n > 0 {
				a.got(at, n, true)
				calls++
				asked += n
			}
			if from > aheadMin && a.upTo < end {
				t.Fatalf("at %d there is room up to %d only", end, a.upTo)
			}
			if a.upTo > end+aheadMax {
				t.Fatalf("at %d room up to %d is held, more than %d bytes", end, a.upTo, aheadMax)
			}
		}
		if asked > end+aheadMax || calls > 2*end/aheadMin {
			t.Errorf("%d bytes were written: %d were asked for, in %d calls", end, asked, calls)
		}
	})
	t.Run("after a rest", func(t *testing.T) {
		var a ahead
		if at, n := a.want(begin, 0, 10<<20); at != 0 || n != 20<<20 {
			t.Errorf("the first 10 MiB: room at %d for %d, want at 0 for 20 MiB", at, n)
		}
		if _, n := a.want(begin.Add(time.Hour), 10<<20, 10<<20+1); n != 0 {
			t.Errorf("one byte an hour later: room for %d is wanted", n)
		}
	})
	t.Run("refused", func(t *testing.T) {
		var a ahead
		a.got(0, 1, false)
		if _, n := a.want(begin, 0, 100<<20); n != 0 {
			t.Error("a file system that reserves nothing is asked again")
		}
	})
	t.Run("another file", func(t *testing.T) {
		var a ahead
		at, n := a.want(begin, 0, 100<<20)
		a.got(at, n, true)
		a.moved()
		if at, n := a.want(begin, 0, 1<<20); at != 0 || n == 0 {
			t.Errorf("a new file is given room at %d for %d, want at 0", at, n)
		}
	})
}
