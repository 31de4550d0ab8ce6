package peers

import (
	"math/rand/v2"
	"testing"

	"github.com/penstock-io/penstock/flow/dispatch"
)

func TestChoices(t *testing.T) {
	idle := func(inFlight int) dispatch.Candidate {
		return dispatch.Candidate{Free: true, Known: true, InFlight: inFlight}
	}
	for _, c := range []struct {
		policy dispatch.Policy
		lanes  []dispatch.Candidate
		want   int
	}{
		{LeastInFlight{}, []dispatch.Candidate{idle(3), idle(1), idle(2)}, 1},
		{LeastInFlight{}, []dispatch.Candidate{{InFlight: 0}, idle(5)}, 1},
		{LeastInFlight{}, []dispatch.Candidate{{}, {}}, -1},
		{TwoChoices{}, []dispatch.Candidate{idle(3), idle(1)}, 1},
		{TwoChoices{}, []dispatch.Candidate{{}, idle(9)}, 1},
		{TwoChoices{}, []dispatch.Candidate{{}}, -1},
	} {
		if got := c.policy.New(rand.NewPCG(1, 1)).Choose(0, 1, 0, c.lanes); got != c.want {
			t.Errorf("%s of %+v chose %d, want %d", c.policy.Name(), c.lanes, got, c.want)
		}
	}
	var n [3]int
	ch := TwoChoices{}.New(rand.NewPCG(5, 5))
	for range 3000 {
		n[ch.Choose(0, 1, 0, []dispatch.Candidate{idle(0), idle(1), idle(2)})]++
	}
	if n[0] < 1900 || n[0] > 2100 || n[1] < 900 || n[1] > 1100 || n[2] != 0 {
		t.Errorf("of lanes with 0, 1, 2 in flight two choices took %v of 3000; want 2, 1, 0 thirds",
			n)
	}
}
