package receiver

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestServesAtItsRate checks that busy slots serve at their rate although every sleep returns late.
// A slot that was idle begins with the arrival of the next request.
func TestServesAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, each, late = 4, 50 * time.Millisecond, 3 * time.Millisecond
		s := &server{Behaviour: Behaviour{Delay: each}, slots: places(atOnce)}
		s.sleep = func(d time.Duration) { time.Sleep(d + late) }
		all := func(n int) time.Duration {
			begun := time.Now()
			var group sync.WaitGroup
			for range n {
				group.Go(s.serve)
			}
			group.Wait()
			return time.Since(begun)
		}
		if took := all(40 * atOnce); took != 40*each+late {
			t.Errorf("40 requests for each place took %v, want %v", took, 40*each+late)
		}
		time.Sleep(time.Second)
		if took := all(atOnce); took != each+late {
			t.Errorf("after a second without any, one for each place took %v, want %v", took,
				each+late)
		}
	})
}
