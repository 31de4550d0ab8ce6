package window

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestScaleOfTime checks that windows do not depend on the unit of time. Powers of two keep the
// arithmetic exact.
func TestScaleOfTime(t *testing.T) {
	for _, a := range []Algorithm{Linear{}, Queue{}, Queue{Short: true}, AIMD{}, Rate{}} {
		var want []float64
		for _, k := range []time.Duration{1, 2, 8} {
			rnd := rand.New(rand.NewPCG(7, 7))
			w := a.New()
			var got []float64
			now := time.Duration(0)
			for i := range 4000 {
				n := w.Limit()
				rtt := time.Duration((10 +
					5*n*rnd.ExpFloat64()/2) * float64(time.Millisecond)).Round(time.Microsecond)
				now += 2 * time.Millisecond
				w.OnSample(Sample{
					Now: now * k, RoundTrip: rtt * k, Cost: 1, InFlightAtSend: n, Limited: true,
					Epoch: w.Epoch(),
				})
				if i%701 == 700 {
					w.OnTimeout(now*k, 1)
				}
				got = append(got, w.Limit())
			}
			if want == nil {
				want = got
			}
			for i := range got {
				if d := got[i] - want[i]; d > 1e-6 || d < -1e-6 {
					t.Fatalf("%s, time times %d: window %v after sample %d, want %v", a.Name(), k,
						got[i], i, want[i])
				}
			}
		}
		if low, high := extremes(want); low == high {
			t.Errorf("%s: the window never moved", a.Name())
		}
	}
}

func extremes(v []float64) (low, high float64) {
	low, high = v[0], v[0]
	for _, x := range v {
		low, high = min(low, x), max(high, x)
	}
	return low, high
}

// TestCreditCounts checks that the window is the difference of two totals since the worker's start:
// the batches that it will accept (the credit), and those that it has taken. As both are totals,
// lost answers do no harm. If a worker advertises too much, the window is at most twice the window
// that its round trips justify, or 4 batches if that is more.
func TestCreditCounts(t *testing.T) {
	w := Credit{}.New().(*credit)
	now := time.Duration(0)
	answer := func(credit, taken uint64) {
		now += 10 * ms
		w.OnSample(Sample{
			Now: now, RoundTrip: 20 * ms, Cost: 1, Mean: 1, InFlightAtSend: w.Limit(),
			Limited: true, Epoch: w.Epoch(),
			Advert: Advert{Valid: true, Credit: credit, Taken: taken},
		})
	}
	for i := uint64(1); i <= 100; i++ {
		answer(i+3, i)
	}
	if w.Limit() != 3 || w.Binding() != "credit" {
		t.Errorf("a grant of 3 more gives a window of %v, and %q binds", w.Limit(), w.Binding())
	}
	for i := uint64(111); i <= 200; i++ { // ten answers were lost
		answer(i+3, i)
	}
	if w.Limit() != 3 {
		t.Errorf("after lost answers the window is %v, want 3", w.Limit())
	}
	answer(1_000_000, 201)
	if own := w.queueWindow.Limit(); w.Limit() > 2*max(own, 2) || w.Binding() != "window" {
		t.Errorf("a grant of a million gives a window of %v beside its own of %v; %q binds",
			w.Limit(), own, w.Binding())
	}
	answer(0, 202)
	if w.Limit() != 1 {
		t.Errorf("a grant of nothing gives a window of %v, want one at a time", w.Limit())
	}
	if ends := w.LeaseEnds(); ends != now+minLease {
		t.Errorf("the lease ends at %v, want %v", ends, now+minLease)
	}
	w.Reset(now)
	if w.Limit() != 1 || w.LeaseEnds() != 0 {
		t.Errorf("after a restart the window is %v, the lease ends at %v", w.Limit(), w.LeaseEnds())
	}
}

func TestPoolSharesEvenly(t *testing.T) {
	var p Pool
	now := time.Duration(0)
	var last [3]Advert
	for i := range 3000 {
		now += 5 * ms
		s := i % 3
		// four batches wait: neither too few nor too many
		last[s] = p.Done(now, uint64(s), 2, 8, 10*ms)
	}
	for s, ad := range last {
		if !ad.Valid || ad.Taken != 2000 || ad.Credit-ad.Taken != last[0].Credit-last[0].Taken {
			t.Errorf("sender %d: %+v; want 2000 taken and the same share as %+v", s, ad, last[0])
		}
	}
	grown := p.size
	for range 3000 {
		now += 5 * ms
		p.Done(now, 0, 2, 0, 10*ms) // nothing waits
	}
	if p.size <= grown {
		t.Errorf("the pool is %v batches after nothing waited, %v before", p.size, grown)
	}
	for range 3000 {
		now += 5 * ms
		p.Done(now, 0, 2, 100, 10*ms)
	}
	if p.size != 1 {
		t.Errorf("the pool is %v batches while fifty wait, want 1", p.size)
	}
}

// closed is a worker with exponential service times. In virtual time, one sender keeps as many
// batches in flight to it as its pool allows.
type closed struct {
	pool    Pool
	rnd     *rand.Rand
	arrive  []time.Duration // batches in transit, in order
	now     time.Duration
	waiting int
}

// run serves n batches of the given mean time over a network with the given round trip, and returns
// the share of the time in which the worker was busy.
func (c *closed) run(n int, mean, network time.Duration) float64 {
	began, busy := c.now, time.Duration(0)
	credit, sent := uint64(4), uint64(0)
	fill := func() {
		for ; sent < credit; sent++ {
			c.arrive = append(c.arrive, c.now+network)
		}
	}
	for fill(); n > 0; n-- {
		if c.waiting == 0 {
			c.now = max(c.now, c.arrive[0])
		}
		c.come()
		c.waiting--
		service := time.Duration(c.rnd.ExpFloat64() * float64(mean))
		busy += service
		c.now += service
		c.come()
		credit = c.pool.Done(c.now, 1, 1, float64(c.waiting), network).Credit
		fill()
	}
	return float64(busy) / float64(c.now-began)
}

func (c *closed) come() {
	for len(c.arrive) > 0 && c.arrive[0] <= c.now {
		c.arrive = c.arrive[1:]
		c.waiting++
	}
}

// TestPoolKeepsBusy checks that a worker is busy for at least 98 % of the time with each of four
// networks. With fixed windows of 2, 5, 9 and 14 batches, it would be busy for 99 % of the time
// (mean value analysis). The pool may be only one or two batches larger than these windows.
func TestPoolKeepsBusy(t *testing.T) {
	for _, v := range []struct {
		network time.Duration // with a mean service time of 10 ms
		most    float64
	}{{ms, 3}, {10 * ms, 6}, {35 * ms, 10}, {70 * ms, 16}} {
		c := closed{rnd: rand.New(rand.NewPCG(1, uint64(v.network)))}
		if busy := c.run(40000, 10*ms, v.network); busy < 0.98 {
			t.Errorf("network %v: busy for %.4f of the time, want 0.98", v.network, busy)
		}
		if p := c.pool.size; p > v.most {
			t.Errorf("network %v: the pool is %v batches, want %v at most", v.network, p, v.most)
		}
	}
}

// TestPoolForgetsPause checks that batches that waited during a pause of the worker do not narrow
// the pool, the number of batches allowed in flight. The pool must follow a worker that has become
// permanently slower.
func TestPoolForgetsPause(t *testing.T) {
	var p Pool
	now := time.Duration(0)
	serve := func(n int, gap time.Duration, waiting float64) {
		for range n {
			now += gap
			p.Done(now, 1, 1, waiting, 10*ms)
		}
	}
	serve(200, 10*ms, 2.5)
	size := p.size
	for range 10 {
		now += 500 * ms
		serve(1, 0, 12)
		serve(12, ms, 12) // the batches that waited during the pause
		serve(20, 10*ms, 2.5)
	}
	if p.size != size {
		t.Errorf("the pool is %v batches after pauses, %v before", p.size, size)
	}
	serve(400, 10*time.Second, 12)
	if p.size > size/2 {
		t.Errorf("the pool is %v batches at a worker that became a thousand times slower with 12 "+
			"waiting, %v before", p.size, size)
	}
}

// TestPoolFirstRoundTrip checks a slow first round trip, which includes the time to connect. It
// must enlarge the pool, the number of batches allowed in flight, only for the first rounds.
func TestPoolFirstRoundTrip(t *testing.T) {
	c := closed{rnd: rand.New(rand.NewPCG(1, 1))}
	c.pool.Done(0, 1, 1, 0, 2*time.Second)
	c.run(40, 50*ms, ms)
	if p := c.pool.size; p > 3 {
		t.Errorf("the pool is %v batches after a slow first round trip, want 3 at most", p)
	}
}
