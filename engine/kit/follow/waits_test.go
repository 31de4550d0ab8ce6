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
