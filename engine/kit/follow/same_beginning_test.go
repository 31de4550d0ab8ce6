package follow_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// TestRewrittenFileBeginsTheSame checks a file that is rewritten in place while its data is in
// flight. The new content begins with the line of the first batch, as a file with a heading does.
// It must not count as a copy of the read data, no matter when it is written.
func TestRewrittenFileBeginsTheSame(t *testing.T) {
	const heading = "0 heading heading\n"
	for _, wait := range []time.Duration{0, time.Second, 3 * time.Second, 4 * time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, r, other := twoRoutes(t, follow.Growing{})
				stop(t, other)
				r.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
				d.put(t, "a.log", heading)
				r.readInFlight(t)
				d.put(t, "a.log", "1 one\n")
				r.readInFlight(t)
				d.empty(t, "a.log")
				r.run(t, 500*time.Millisecond)
				r.unordered.settleAll(r)
				r.run(t, wait)
				d.put(t, "a.log", heading)
				r.run(t, 200*time.Millisecond)
				r.unordered.settleAll(r)
				d.put(t, "a.log", "2 two\n")
				r.run(t, 30*time.Second)
				r.unordered.settleAll(r)
				r.want(t, d, heading[:len(heading)-1], heading[:len(heading)-1], "1 one", "2 two")
			})
		})
	}
}
