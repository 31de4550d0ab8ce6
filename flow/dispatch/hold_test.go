package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

// busy makes the first n of three lanes full, with the given work in flight.
func busy(c []Candidate, work ...int) []Candidate {
	for i, n := range work {
		c[i].Free, c[i].Full, c[i].InFlight, c[i].Work = false, true, n, float64(n)
	}
	return c
}

func TestChooseOrHold(t *testing.T) {
	const now = 500 * ms
	heard := func(c []Candidate) {
		for i := range c {
			c[i].LastAnswer = now
		}
	}
	for _, c := range []struct {
		name        string
		lanes       []Candidate
		edit        func(c []Candidate)
		lane        int
		least, most float64
	}{
		{"an idle fast lane waits for nobody", busy(three()), heard, 0, 0, 0},
		{"the slow lane for many", busy(three(), 4, 4), heard, 2, 8, 16},
		{"the second fastest for few", busy(three(), 4), heard, 1, -3, 0.99},
		{"a lane that is covered counts as busy", busy(three()), func(c []Candidate) {
			heard(c)
			c[0].InFlight, c[0].Work, c[1].InFlight, c[1].Work = 4, 4, 4, 4
			c[0].Base, c[1].Base = c[0].Service, c[1].Service
		}, 2, 8, 16},
		{"a lane may be far instead of covered, where its drained round trip is not measured",
			busy(three()), func(c []Candidate) {
				heard(c)
				c[0].InFlight, c[0].Work, c[1].InFlight, c[1].Work = 4, 4, 4, 4
			}, 0, -9, 0.99},
		{"or where it is long", busy(three()), func(c []Candidate) {
			heard(c)
			c[0].InFlight, c[0].Work, c[1].InFlight, c[1].Work = 4, 4, 4, 4
			c[0].Base, c[1].Base = 8*c[0].Service, c[1].Service
		}, 0, -9, 0.99},
		{"nobody waits for a lane that is silent", busy(three(), 4, 4), func([]Candidate) {},
			2, 0, 0},
		{"nor for one that fails", busy(three(), 4, 4), func(c []Candidate) {
			heard(c)
			c[0].Failures, c[1].Failures = 0.1, 0.1
		}, 2, 0, 0},
		{"nor for one that is not full but shut", busy(three(), 4, 4), func(c []Candidate) {
			heard(c)
			c[0].Full, c[1].Full = false, false
		}, 2, 0, 0},
		{"a lane to be measured again waits for nobody", busy(three(), 4, 4), func(c []Candidate) {
			heard(c)
			c[2].LastStart = -10 * time.Second
		}, 2, 0, 0},
		{"nor does one that is not known", busy(three(), 4, 4), func(c []Candidate) {
			heard(c)
			c[2].Known = false
		}, 2, 0, 0},
		{"a single lane is filled", busy(three())[:1], func(c []Candidate) {
			heard(c)
			c[0].InFlight, c[0].Work = 9, 9
		}, 0, 0, 0},
		{"none free", busy(three(), 4, 4, 1), heard, -1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.edit(c.lanes)
			was := append([]Candidate(nil), c.lanes...)
			i, most := (LeastCompletion{}).New(source(1)).(Holder).ChooseOrHold(now, 1, 0, c.lanes)
			if i != c.lane || most < c.least || most > c.most {
				t.Errorf("lane %d when more than %.1f wait, want lane %d, more than %v to %v", i,
					most, c.lane, c.least, c.most)
			}
			for i := range was {
				if c.lanes[i] != was[i] {
					t.Errorf("candidate %d was changed from %+v to %+v", i, was[i], c.lanes[i])
				}
			}
		})
	}
}

// TestChooseOrHoldMetamorphic checks that making the chosen lane worse lets more items wait, and
// that making a busy lane worse lets fewer wait. The result must not depend on the unit of time.
func TestChooseOrHoldMetamorphic(t *testing.T) {
	rnd := rand.New(source(7))
	held := 0
	for range 5000 {
		lanes := make([]Candidate, 2+rnd.IntN(8))
		for i := range lanes {
			rate := 5 + 100*rnd.Float64()
			lanes[i] = Candidate{
				Lane: int32(i), Full: i > 0, Free: i == 0, Known: true, Mean: 1, Rate: rate,
				LastAnswer: time.Second, LastStart: time.Second,
				Service: time.Duration(float64(time.Second)/rate) + time.Duration(rnd.IntN(20))*ms,
			}
			if i > 0 {
				lanes[i].InFlight = 1 + rnd.IntN(5)
				lanes[i].Work = float64(lanes[i].InFlight)
			}
		}
		place := func() float64 {
			holder := (LeastCompletion{}).New(source(1)).(Holder)
			i, most := holder.ChooseOrHold(time.Second, 1, 0, lanes)
			if i != 0 {
				t.Fatalf("chose %d of one free lane", i)
			}
			return most
		}
		before := place()
		if before >= 1 {
			held++
		}
		lanes[0].Service *= 2
		if slower := place(); slower < before-1e-9 && before > 0 {
			t.Fatalf("more than %v waited for others, %v when the free lane is slower: %+v", before,
				slower, lanes)
		}
		lanes[0].Service /= 2
		j := 1 + rnd.IntN(len(lanes)-1)
		lanes[j].Failures = 0.5
		if fewer := place(); fewer > before+1e-9 && before > 0 && alone(lanes, j) {
			t.Fatalf("more than %v waited, %v when the only other lane fails: %+v", before,
				fewer, lanes)
		}
		lanes[j].Failures = 0
		for i := range lanes {
			lanes[i].Rate /= 8
			lanes[i].Service *= 8
		}
		if same := place(); same-before > 1e-6*(1+max(before, -before)) ||
			before-same > 1e-6*(1+max(before, -before)) {
			t.Fatalf("more than %v waited, %v where all takes eight times as long: %+v", before,
				same, lanes)
		}
	}
	if held < 500 {
		t.Errorf("only %d of 5000 let an item wait", held)
	}
}

func alone(c []Candidate, j int) bool { return len(c) == 2 && j == 1 }
