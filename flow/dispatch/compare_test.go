package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPermuted checks that the choice depends on the properties of a lane, not on its index.
func TestPermuted(t *testing.T) {
	rnd := rand.New(source(11))
	for _, p := range []Policy{LeastCompletion{}, LeastInFlight{}} {
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
			order := rnd.Perm(n)
			moved := make([]Candidate, n)
			for i, from := range order {
				moved[i] = lanes[from]
			}
			a := p.New(source(1)).Choose(0, 1, 0, lanes)
			b := p.New(source(1)).Choose(0, 1, 0, moved)
			if (a < 0) != (b < 0) || a >= 0 && lanes[a].Lane != moved[b].Lane {
				t.Fatalf("%s chose %d of %+v, and %d of the same in another order", p.Name(), a,
					lanes, b)
			}
		}
	}
}

func TestForComparison(t *testing.T) {
	idle := func(inFlight int) Candidate {
		return Candidate{Free: true, Known: true, InFlight: inFlight}
	}
	for _, c := range []struct {
		policy Policy
		lanes  []Candidate
		want   int
	}{
		{LeastInFlight{}, []Candidate{idle(3), idle(1), idle(2)}, 1},
		{LeastInFlight{}, []Candidate{{InFlight: 0}, idle(5)}, 1},
		{LeastInFlight{}, []Candidate{{}, {}}, -1},
		{TwoChoices{}, []Candidate{idle(3), idle(1)}, 1},
		{TwoChoices{}, []Candidate{{}, idle(9)}, 1},
		{TwoChoices{}, []Candidate{{}}, -1},
	} {
		if got := c.policy.New(source(1)).Choose(0, 1, 0, c.lanes); got != c.want {
			t.Errorf("%s of %+v chose %d, want %d", c.policy.Name(), c.lanes, got, c.want)
		}
	}
	var n [3]int
	ch := TwoChoices{}.New(source(5))
	for range 3000 {
		n[ch.Choose(0, 1, 0, []Candidate{idle(0), idle(1), idle(2)})]++
	}
	if n[0] < 1900 || n[0] > 2100 || n[1] < 900 || n[1] > 1100 || n[2] != 0 {
		t.Errorf("of lanes with 0, 1, 2 in flight two choices took %v of 3000; want 2, 1, 0 thirds",
			n)
	}
}
