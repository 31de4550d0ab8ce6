package follow_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// A file of which the second route had read nothing when it was emptied: that route read the copy as a file of its own, and gave the other
// one up. The first one has found the copy to be what became of it. When the copy is copied again, and the process begins anew, the second
// one goes on with what it had read as the copy.
func TestGivenUpAndFoundByAnotherRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three[:len(three)-3])
		a.run(t, time.Second)
		d.put(t, "a.log", three[len(three)-3:])
		reads := 0
		d.hook = func(name string) { // the second route has read the head
			if reads++; reads == 2 {
				d.hook = nil
				d.copyTruncate(t, "a.log", "a.log.1", func() {})
			}
		}
		b.run(t, 10*time.Second)
		a.run(t, 2*time.Second)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		d.put(t, "a.log.1.2", three)
		a.run(t, time.Second)
		d.delete(t, "a.log.1")
		a.run(t, 2*time.Second)
		stop(t, a, b)

		a2, b2 := d.restarted(t, a, b)
		turns(t, 10, 2*time.Second, b2, a2)
		wantLines(t, d, a2, b2)
	})
}
