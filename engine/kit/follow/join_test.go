package follow_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// A route opens later than another one, which has given a file an id of its own by then. It keeps the id by which it knows the
// file, and goes on where it was.
func TestRouteKeepsItsIDWhenItJoins(t *testing.T) {
	for name, how := range map[string]struct{ noted, moved, first bool }{
		"with a note": {noted: true}, "by a ledger": {}, "in a copy": {noted: true, moved: true}, "before": {first: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three[:6])
				turns(t, 1, 2*time.Second, a)
				d.put(t, "a.log", three[6:])
				turns(t, 1, 2*time.Second, a)
				stop(t, a, b)
				for id, m := range a.marks {
					if !how.noted {
						m.Note = ""
						a.marks[id] = m
					}
				}
				if how.moved {
					d.copyTruncate(t, "a.log", "a.log.1", func() {})
					d.put(t, "a.log", "0 zero\n")
				}
				s := d.set(follow.Growing{})
				var a2 *route
				if how.first {
					a2 = newRoute(t, s, a.marks)
				}
				b2 := newRoute(t, s, nil)
				turns(t, 1, 2*time.Second, b2)
				if !how.first {
					a2 = newRoute(t, s, a.marks)
				}
				d.put(t, "a.log", "4 four\n")
				turns(t, 10, time.Second, a2, b2)
				want := []string{"4 four"}
				if how.moved {
					want = []string{"0 zero", "4 four"}
				}
				a2.want(t, d, want...)
				want = append(want[:len(want)-1:len(want)-1], "1 one", "2 two", "3 three", "4 four")
				b2.want(t, d, want...)
				if one, two := a.ids["1 one"], a2.ids["4 four"]; one != two && !how.moved {
					t.Errorf("the route knew a.log as %s, and now as %s", one, two)
				}
			})
		})
	}
}
