package receiver

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestServesAtItsRate checks that a busy receiver serves at its rate although every sleep returns
// late. After an idle time, the delay of a request begins when the request arrives.
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
