package waiting

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestNextKeepsNothing adds ranges to the store while a call of Next waits, because no range is due
// yet. The memory that this call uses must not grow with the number of added ranges.
func TestNextKeepsNothing(t *testing.T) {
	const adds, bound = 20_000, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())
		add := func() {
			s.Hold([]Range{{Part: part(0), Range: span(0, 10)}}, wait(time.Hour, 2))
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, _, err := s.Next(ctx, false, 1, 1)
			ended <- err
		}()
		memory := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		add()
		before := memory()
		for range adds {
			add()
		}
		if grown := memory() - before; grown > bound {
			t.Errorf("%d added ranges have made a waiting Next grow by %d bytes", adds, grown)
		}
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("Next returned %v", err)
		}
	})
}
