package supervise_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

// TestLargeMessageGetsRoom checks that a large message is accepted although smaller messages keep
// coming. A caller that gives up makes room for the next one.
func TestLargeMessageGetsRoom(t *testing.T) {
	for _, givesUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, stop := resend(t, options{
				Child: supervise.Each("slow", func(context.Context, int, string) (string, error) {
					time.Sleep(time.Second)
					return "", nil
				}),
				Limits: supervise.Limits{Bytes: 4},
				Size:   func(m string) int64 { return int64(len(m)) },
			})
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			var accepted atomic.Int64
			for i := range 3 { // smaller messages keep coming
				go func() {
					for key := i; r.Send(ctx, key, "1") == nil; key += 3 {
						accepted.Add(1)
					}
				}()
			}
			time.Sleep(time.Minute)
			large, giveUp := context.WithTimeout(t.Context(), time.Hour)
			defer giveUp()
			if givesUp {
				large, giveUp = context.WithTimeout(t.Context(), time.Second/2)
				defer giveUp()
			}
			begun := time.Now()
			err := r.Send(large, -1, "1234")
			if took := time.Since(begun); (err != nil) != givesUp || took > 10*time.Second {
				t.Errorf("sent after %v: %v", took, err)
			}
			before := accepted.Load()
			time.Sleep(time.Minute)
			if n := accepted.Load() - before; n < 50 {
				t.Errorf("%d small messages were accepted in the minute after, want about 60", n)
			}
			cancel()
			synctest.Wait()
		})
	}
}
