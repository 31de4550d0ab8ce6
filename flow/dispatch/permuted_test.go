package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPermuted checks that the choice depends on the properties of a lane, not on its index.
func TestPermuted(t *testing.T) {
	rnd := rand.New(source(11))
	for range 500 {
		n := 2 + rnd.IntN(8)
		lanes := make([]Candidate, n)
		for i, place := range rnd.Perm(n) { // no two are equal, so the choice is not random
			lanes[i] = Candidate{
				Lane: int32(i), Free: rnd.IntN(5) > 0, Known: true, Mean: 1, InFlight: place,
				Work:    float64(place),
				Rate:    1 + 100*rnd.Float64(),
				Service: time.Duration(1+rnd.IntN(1e8)) * time.Microsecond,
			}
		}
		moved := make([]Candidate, n)
		for i, from := range rnd.Perm(n) {
			moved[i] = lanes[from]
		}
		a := LeastCompletion{}.New(source(1)).Choose(0, 1, 0, lanes)
		b := LeastCompletion{}.New(source(1)).Choose(0, 1, 0, moved)
		if (a < 0) != (b < 0) || a >= 0 && lanes[a].Lane != moved[b].Lane {
			t.Fatalf("chose %d of %+v, and %d of the same in another order", a, lanes, b)
		}
	}
}
