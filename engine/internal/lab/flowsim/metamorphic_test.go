package flowsim_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/peers"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// These tests change the environment of a control.Machine in a known way: its receivers, their
// order, or the unit of time. They check that its decisions change as expected, for each kind of
// window and each dispatch policy. They find inverted formulas, which tables of expected values do
// not find (elasticsearch #70283).

const ms = time.Millisecond

// sixReceivers returns six unequal receivers. No two of their times have a small common multiple.
// Together they serve 279 items a second.
func sixReceivers() []receiver {
	var r []receiver
	for _, service := range []time.Duration{10_007_000, 12_553_000, 21_101_000, 33_013_000,
		67_003_000, 151_007_000} {
		r = append(r, receiver{service: service, network: 10_009_000})
	}
	return r
}

// halfLoad is the time between two items at about half the capacity of the six receivers.
const halfLoad = 7_457_000 * time.Nanosecond

// each runs a test for every kind of window with every policy.
func each(t *testing.T, run func(t *testing.T, w window.Algorithm, p dispatch.Policy)) {
	for _, w := range kinds() {
		for _, p := range policies() {
			t.Run(w.Name()+"/"+p.Name(), func(t *testing.T) {
				t.Parallel()
				run(t, w, p)
			})
		}
	}
}

// TestWorseIsNotChosenMore checks that a receiver that becomes worse does not get a larger share of
// the attempts, under half and full load. Worse means a longer network delay, service or queue, or
// failures. One case is omitted: round robin with failures under half load. All windows then have
// room, so each failed item is an additional attempt, which may go to the failing receiver again.
func TestWorseIsNotChosenMore(t *testing.T) {
	worse := map[string]func(r *receiver){
		"network": func(r *receiver) { r.network += 60 * ms },
		"service": func(r *receiver) { r.service *= 3 },
		"queue":   func(r *receiver) { r.others = 3 },
		"errors":  func(r *receiver) { r.fails = 4 },
	}
	each(t, func(t *testing.T, win window.Algorithm, p dispatch.Policy) {
		for _, every := range []time.Duration{0, halfLoad} {
			c := control.Config{Window: win, Dispatch: p}
			before := newHarness(t, c, every, sixReceivers()...).run(3 * time.Second)
			for name, change := range worse {
				if name == "errors" && p == (dispatch.RoundRobin{}) && every > 0 {
					continue
				}
				for _, i := range []int{0, 3} {
					r := sixReceivers()
					change(&r[i])
					after := newHarness(t, c, every, r...).run(3 * time.Second)
					was, is, slack := before.share(i, p), after.share(i, p), 0.03
					if p == (peers.TwoChoices{}) {
						slack = 0.15 // random variation
					}
					if is > (1+slack)*was+0.003 {
						t.Errorf("an item every %v: receiver %d has worse %s and %.4f of the "+
							"attempts, %.4f before",
							every, i, name, is, was)
					} else if _, best := p.(dispatch.LeastCompletion); best && i == 0 && every > 0 && is > 0.9*was {
						t.Errorf("an item every %v: receiver %d has worse %s and still %.4f of "+
							"the attempts, %.4f before",
							every, i, name, is, was)
					}
				}
			}
		}
	})
}

// share returns receiver i's share of the attempts. If each item is bound to one receiver, only the
// first attempts count.
func (h *harness) share(i int, p dispatch.Policy) float64 {
	_, bound := p.(dispatch.Hash)
	mine, all := 0, 0
	for _, s := range h.starts {
		if bound && s.number > 1 {
			continue
		}
		all++
		if s.receiver == i {
			mine++
		}
	}
	return float64(mine) / float64(all)
}

// TestWorseCandidate checks, for every policy, a candidate that the policy has not chosen. The
// policy must not choose this candidate after it has become worse.
func TestWorseCandidate(t *testing.T) {
	worse := map[string]func(c *dispatch.Candidate){
		"round trip": func(c *dispatch.Candidate) { c.Service *= 2 },
		"queue":      func(c *dispatch.Candidate) { c.InFlight, c.Work = c.InFlight+1, c.Work+1 },
		"errors":     func(c *dispatch.Candidate) { c.Failures += (1 - c.Failures) / 3 },
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	for _, p := range policies() {
		for range 5_000 {
			lanes := make([]dispatch.Candidate, 2+rnd.IntN(8))
			for i := range lanes {
				queued := rnd.IntN(4)
				lanes[i] = dispatch.Candidate{
					Lane: int32(i), Free: rnd.IntN(5) > 0, Known: rnd.IntN(6) > 0, Mean: 1,
					InFlight: queued, Work: float64(queued),
					Rate: 100 * rnd.Float64(), Service: time.Duration(1 + rnd.IntN(1e8)),
					Failures: max(0, rnd.Float64()-0.5),
				}
			}
			seed, key, i := rnd.Uint64(), rnd.Uint64(), rnd.IntN(len(lanes))
			choose := func() int { return p.New(rand.NewPCG(seed, 1)).Choose(3*time.Second, 1, key, lanes) }
			before := choose()
			for name, change := range worse {
				was := lanes[i]
				change(&lanes[i])
				if after := choose(); after == i && before != i {
					t.Errorf("%s: lane %d has worse %s and is chosen instead of %d; "+
						"it was %+v among %+v",
						p.Name(), i, name, before, was, lanes)
				}
				lanes[i] = was
			}
		}
	}
}

// TestWorseRank makes a receiver worse. It must not rise in the ranking of least completion, and
// the other receivers must keep their order.
func TestWorseRank(t *testing.T) {
	worse := map[string]func(r *receiver){
		"network": func(r *receiver) { r.network += 25 * ms },
		"service": func(r *receiver) { r.service *= 2 },
		"errors":  func(r *receiver) { r.fails = 4 },
	}
	for _, win := range kinds() {
		for _, p := range []dispatch.Policy{dispatch.LeastCompletion{}} {
			before := rank(t, win, p, sixReceivers())
			if !slices.Equal(before, []int{0, 1, 2, 3, 4, 5}) {
				t.Errorf("%s, %s: the order is %v, and that of their speed 0 to 5", win.Name(),
					p.Name(), before)
			}
			for name, change := range worse {
				for i := range before {
					r := sixReceivers()
					change(&r[i])
					after := rank(t, win, p, r)
					if slices.Index(after, i) < slices.Index(before, i) {
						t.Errorf("%s, %s: receiver %d has worse %s and rises: %v", win.Name(),
							p.Name(), i, name, after)
					}
					rest := slices.DeleteFunc(slices.Clone(after),
						func(o int) bool { return o == i })
					if !slices.IsSorted(rest) {
						t.Errorf("%s, %s: receiver %d has worse %s and the others "+
							"change places: %v", win.Name(), p.Name(), i, name, after)
					}
				}
			}
		}
	}
}

// rank returns the order in which a machine chooses the receivers when all of them are idle. Before
// that, the machine has measured all of them.
func rank(t *testing.T, win window.Algorithm, p dispatch.Policy, r []receiver) []int {
	t.Helper()
	m, err := control.New(control.Config{Window: win, Dispatch: p, Timeout: -1,
		Breaker: control.Breaker{Failures: -1}})
	if err != nil {
		t.Fatal(err)
	}
	var out []control.Command
	now, seq := time.Duration(0), uint64(0)
	step := func(e control.Event) []control.Command {
		e.Now = now
		out = m.Step(e, out[:0])
		return out
	}
	for i := range r {
		step(control.Event{Kind: control.LaneUp, Lane: int32(i),
			Limits: control.Limits{InFlight: 1}})
	}
	slower := make([]int, len(r))
	for i := range slower {
		slower[i] = i
	}
	slices.SortFunc(slower, func(a, b int) int {
		return int(r[a].network + r[a].service - r[b].network - r[b].service)
	})
	for round := 1; ; round++ { // one item to each; in the last round none answers
		var order []int
		ids := make([]uint64, len(r))
		for range r {
			seq++
			for _, c := range step(control.Event{Kind: control.Offer, Seq: seq, Cost: 1}) {
				order, ids[c.Lane] = append(order, int(c.Lane)), c.ID
			}
		}
		if round == 40 {
			return order
		}
		begun := now
		var bad uint64
		for _, i := range slower {
			now = begun + r[i].network + r[i].service
			if r[i].fails > 0 && round%r[i].fails == 0 {
				bad = ids[i] // last, so that all others are idle
				continue
			}
			step(control.Event{Kind: control.Answer, ID: ids[i], Outcome: control.Delivered})
		}
		if bad == 0 {
			continue
		}
		for _, c := range step(control.Event{Kind: control.Answer, ID: bad,
			Outcome: control.Retryable}) {
			now += r[c.Lane].network + r[c.Lane].service
			step(control.Event{Kind: control.Answer, ID: c.ID, Outcome: control.Delivered})
		}
	}
}

// TestPermutedReceivers exchanges the lane numbers of the receivers, which must change nothing
// else. With every policy, the receivers must keep about the same shares of the attempts. With
// least completion, all attempts must be equal. Hash is omitted, because it chooses the receiver of
// an item by the lane number.
func TestPermutedReceivers(t *testing.T) {
	each(t, func(t *testing.T, win window.Algorithm, p dispatch.Policy) {
		exact, long := false, 20*time.Second // long enough that random shares vary little
		switch p.(type) {
		case dispatch.Hash:
			return
		case dispatch.LeastCompletion:
			exact, long = true, 5*time.Second
		}
		for _, every := range []time.Duration{0, halfLoad} {
			play := func(lanes []int32) *harness {
				w := newHarness(t, control.Config{Window: win, Dispatch: p}, every,
					sixReceivers()...)
				w.lanes, w.apart = lanes, 501*ms // so that only one lane at a time is unknown
				return w.run(long)
			}
			want := play([]int32{0, 1, 2, 3, 4, 5})
			for _, lanes := range [][]int32{{5, 4, 3, 2, 1, 0}, {2, 0, 5, 1, 3, 4},
				{10, 30, 20, 7, 0, 1}} {
				got := play(lanes)
				for i := range want.receivers {
					// random variation
					if is, was := got.share(i, p), want.share(i, p); math.Abs(is-was) > 0.1*was+0.01 {
						t.Errorf("an item every %v: as lane %d receiver %d has %.4f of the "+
							"attempts, as lane %d %.4f",
							every, lanes[i], i, is, i, was)
					}
				}
				if !exact {
					continue
				}
				if !slices.Equal(got.limits, want.limits) {
					t.Errorf("an item every %v: as lanes %v the windows are others", every, lanes)
				}
				for i := range want.starts {
					if i >= len(got.starts) || got.starts[i] != want.starts[i] {
						t.Fatalf("an item every %v: as lanes %v attempt %d is %+v, as 0 to 5 %+v",
							every, lanes, i, got.starts[i], want.starts[i])
					}
				}
			}
		}
	})
}

// TestScaledTime makes all times three times as long. The windows must then be the same after each
// response. The receivers are so slow that limits in seconds have no effect, in contrast to limits
// in round trips.
func TestScaledTime(t *testing.T) {
	each(t, func(t *testing.T, win window.Algorithm, p dispatch.Policy) {
		play := func(k time.Duration) *harness {
			r := sixReceivers()
			for i := range r {
				r[i] = receiver{service: k * r[i].service, network: k * 800 * ms}
			}
			return newHarness(t, control.Config{Window: win, Dispatch: p, Timeout: -1}, 0,
				r...).run(k * 25 * time.Second)
		}
		want := play(1)
		low, high := slices.Min(want.limits), slices.Max(want.limits)
		if _, fixed := win.(window.Fixed); !fixed && high < 3*low {
			t.Errorf("the windows are from %v to %v: they hardly moved", low, high)
		}
		got := play(3)
		if len(got.limits) != len(want.limits) {
			t.Errorf("%d answers, want %d", len(got.limits), len(want.limits))
		}
		for i := range min(len(got.limits), len(want.limits)) {
			// seconds are rounded
			if is, was := got.limits[i], want.limits[i]; math.Abs(is-was) > 1e-6*was {
				t.Fatalf("the window is %v after answer %d, want %v", is, i, was)
			}
		}
	})
}
