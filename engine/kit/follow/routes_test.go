package follow_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// TestSecondRouteBeginsForItself checks the position at which a route begins an unread file. It is
// the same as if the route were the only one, although another route already follows the file.
func TestSecondRouteBeginsForItself(t *testing.T) {
	t.Run("at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{FromEnd: true})
			d.put(t, "a.log", "1 old\n")
			for range 2 {
				turns(t, 1, 2*time.Second, a, b)
				d.put(t, "a.log", fmt.Sprintf("%d new\n", 2+len(a.lines)))
			}
			turns(t, 1, 2*time.Second, a, b)
			wantLines(t, d, a, b, "2 new", "3 new")
		})
	})
	t.Run("after what it has read of the original", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", three)
			turns(t, 1, time.Second, a, b)
			d.copyTruncate(t, "a.log", "a.log.1", func() {
				turns(t, 1, time.Second, a, b)
				d.put(t, "a.log", "4 only in the original\n")
				turns(t, 1, time.Second, a, b)
			})
			d.put(t, "a.log", "5 five\n")
			turns(t, 10, time.Second, a, b)
			wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 only in the original", "5 five")
		})
	})
}
