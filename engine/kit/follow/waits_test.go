package follow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/follow"
)

// A reader tells before it waits, and not while it has full batches at hand.
func TestTellsBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", strings.Repeat("1234567\n", 8))
		r := d.set(follow.Growing{}).Open(penstock.OpenOptions{})
		defer r.Close()
		told, at := 0, time.Time{}
		r.BeforeWait(func() { told, at = told+1, time.Now() })
		read := func(ctx context.Context) (int, error) {
			b := penstock.NewBatch(penstock.Limits{Records: 2})
			err := r.Read(ctx, b)
			return b.Origins, err
		}
		if n, err := read(t.Context()); n != 2 || err != nil {
			t.Fatalf("the first Read: %d records, %v", n, err)
		}
		told = 0 // before that it has listed the files
		for range 3 {
			if n, err := read(t.Context()); n != 2 || err != nil || told > 0 {
				t.Errorf("a Read with enough at hand: %d records, %v, told %d times", n, err, told)
			}
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if n, err := read(ctx); n != 0 || !errors.Is(err, context.DeadlineExceeded) || told == 0 || at.Sub(begun) > 10*time.Second {
			t.Errorf("a Read with nothing at hand: %d records, %v, told %d times, %v after it began", n, err, told, at.Sub(begun))
		}
	})
}

// A copy that is held back is compared again when something can have changed, and else once in poll_max: not at each turn of the reader.
func TestHeldBackIsLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		a.run(t, 2*time.Second)
		d.put(t, "a.log.1", three)
		calls, reads := 0, 0
		d.step = func() { calls++ }
		d.hook = func(string) { reads++ }
		a.run(t, 4*time.Second)
		if calls > 150 || reads > 50 || reads == 0 { // 4 s are 4 times poll_max, and a comparison takes up to 8 reads
			t.Errorf("%d calls and %d reads in 4 s", calls, reads)
		}
		d.empty(t, "a.log")
		d.put(t, "a.log.1", "4 four\n")
		a.run(t, time.Second)
		a.want(t, d, "1 one", "2 two", "3 three", "4 four")
	})
}
