package control_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/internal/kernel"
)

// throttler is a simulated receiver that answers some attempts with 429 without Retry-After.
type throttler struct {
	roundTrip time.Duration
	jitter    float64       // random addition to half a round trip, as a share of it
	service   time.Duration // of one accepted attempt at a time
	senders   int
	// admits reports whether the receiver accepts an attempt that arrives now, while it processes
	// the given number of attempts.
	admits func(now time.Duration, held int) bool
}

// everyNth refuses each nth attempt.
func everyNth(n int) func(time.Duration, int) bool {
	count := 0
	return func(time.Duration, int) bool {
		count++
		return count%n != 0
	}
}

// atRandom refuses a share of the attempts.
func atRandom(share float64) func(time.Duration, int) bool {
	rnd := rand.New(rand.NewPCG(1, 2))
	return func(time.Duration, int) bool { return rnd.Float64() >= share }
}

// tokens accepts attempts at a rate per second, and burst attempts at once.
func tokens(rate, burst float64) func(time.Duration, int) bool {
	left, last := burst, time.Duration(0)
	return func(now time.Duration, _ int) bool {
		left, last = min(burst, left+rate*(now-last).Seconds()), now
		if left < 1-1e-9 {
			return false
		}
		left--
		return true
	}
}

// quota refuses everything during the last part of each period.
func quota(period, refusing time.Duration) func(time.Duration, int) bool {
	return func(now time.Duration, _ int) bool { return now%period < period-refusing }
}

// perWindow accepts n attempts in each period.
func perWindow(n int, period time.Duration) func(time.Duration, int) bool {
	taken, slot := 0, time.Duration(-1)
	return func(now time.Duration, _ int) bool {
		if s := now / period; s != slot {
			taken, slot = 0, s
		}
		taken++
		return taken <= n
	}
}

// sliding accepts n attempts in any second.
func sliding(n int) func(time.Duration, int) bool {
	var taken []time.Duration
	return func(now time.Duration, _ int) bool {
		for len(taken) > 0 && taken[0] <= now-time.Second {
			taken = taken[1:]
		}
		if len(taken) >= n {
			return false
		}
		taken = append(taken, now)
		return true
	}
}

// concurrent accepts n attempts at once.
func concurrent(n int) func(time.Duration, int) bool {
	return func(_ time.Duration, held int) bool { return held < n }
}

type throttleEvent struct {
	kind   byte // 'r' reaches the receiver, 'a' is answered, 'w' timer
	sender int
	id     uint64
	ok     bool
}

// throttleRun is the result of a run: deliveries and refusals by second.
type throttleRun struct{ delivered, refused []int }

// between returns the deliveries per second and the share of refused attempts in a part of the run.
func (r *throttleRun) between(from, to int) (rate, share float64) {
	d, n := 0, 0
	for i := from; i < to; i++ {
		d += r.delivered[i]
		n += r.refused[i]
	}
	return float64(d) / float64(to-from), float64(n) / float64(max(1, n+d))
}

// throttleSim is one run of a throttler.
type throttleSim struct {
	*throttler
	throttleRun
	events  kernel.Kernel[throttleEvent]
	senders []*throttleSender
	rnd     *rand.Rand
	out     []control.Command
	held    int // attempts that the receiver processes
	busy    time.Duration
}

type throttleSender struct {
	m     *control.Machine
	seq   uint64
	timer time.Duration // -1: none
}

// run runs senders with an endless backlog for the given number of seconds.
func (x *throttler) run(t *testing.T, win window.Algorithm, seconds int) *throttleRun {
	t.Helper()
	s := &throttleSim{throttler: x, rnd: rand.New(rand.NewPCG(3, 4))}
	s.delivered, s.refused = make([]int, seconds+1), make([]int, seconds+1)
	for i := range max(1, x.senders) {
		m, err := control.New(control.Config{Seed: uint64(i + 1), Window: win})
		if err != nil {
			t.Fatal(err)
		}
		s.senders = append(s.senders, &throttleSender{m: m, timer: -1})
		s.step(i, control.Event{Kind: control.LaneUp, Lane: 0})
	}
	for {
		e, more := s.events.Next(time.Duration(seconds) * time.Second)
		if !more {
			return &s.throttleRun
		}
		s.happen(e)
	}
}

func (s *throttleSim) happen(e throttleEvent) {
	now := s.events.Now()
	switch second := int(now / time.Second); e.kind {
	case 'r':
		if e.ok = s.admits(now, s.held); !e.ok {
			s.refused[second]++
			e.kind = 'a'
			s.events.After(s.half(), e)
			break
		}
		s.held++
		s.delivered[second]++
		s.busy = max(s.busy, now) + s.service
		e.kind = 'a'
		s.events.At(s.busy+s.half(), e)
	case 'a':
		a := control.Event{Kind: control.Answer, ID: e.id, Outcome: control.Throttled}
		if e.ok {
			a.Outcome = control.Delivered
			s.held--
		}
		s.step(e.sender, a)
	case 'w':
		if s.senders[e.sender].timer == now {
			s.senders[e.sender].timer = -1
			s.step(e.sender, control.Event{Kind: control.Tick})
		}
	}
}

// half returns the time of one direction of the network.
func (s *throttleSim) half() time.Duration {
	return time.Duration(float64(s.roundTrip) / 2 * (1 + s.jitter*s.rnd.ExpFloat64()))
}

// step passes an event to the machine of sender i, and then offers it items.
func (s *throttleSim) step(i int, e control.Event) {
	d := s.senders[i]
	for first := true; first || d.m.Room(); first = false {
		if !first {
			d.seq++
			e = control.Event{Kind: control.Offer, Seq: d.seq, Cost: 1}
		}
		e.Now = s.events.Now()
		s.out = d.m.Step(e, s.out[:0])
		for _, c := range s.out {
			if c.Kind == control.Start {
				s.events.After(s.half(), throttleEvent{kind: 'r', sender: i, id: c.ID})
			}
		}
	}
	if at, ok := d.m.Wake(); ok && at != d.timer {
		d.timer = at
		s.events.AtEnd(max(at, s.events.Now()), throttleEvent{kind: 'w', sender: i})
	}
}

// TestThrottleWithoutAStatedTime checks the rate of deliveries and the share of refusals at
// receivers that answer 429 for several reasons and state no time to wait. Each receiver processes
// up to 1,000 attempts per second, and a sender always has a backlog. The figures are those from
// second 30 on.
func TestThrottleWithoutAStatedTime(t *testing.T) {
	const fast, slow = 2 * time.Millisecond, 50 * time.Millisecond // round trips
	queue, linear, fixed := window.Queue{}, window.Linear{}, window.Fixed{Size: 4}
	one := window.Fixed{Size: 1}
	for _, c := range []struct {
		name      string
		admits    func(time.Duration, int) bool
		roundTrip time.Duration
		senders   int
		window    window.Algorithm
		rate      float64 // least deliveries per second
		share     float64 // largest share of refusals
	}{
		{"every 7th", everyNth(7), fast, 1, one, 240, .15}, // 313 without refusals
		{"every 7th, queue", everyNth(7), fast, 1, queue, 900, .15},
		{"every 7th, linear", everyNth(7), fast, 1, linear, 900, .15},
		{"every 7th, 50 ms", everyNth(7), slow, 1, one, 12, .15}, // 18 without refusals
		{"14 % by chance", atRandom(.14), fast, 1, one, 230, .16},
		{"3 % by chance", atRandom(.03), fast, 1, queue, 900, .04},
		{"bucket", tokens(50, 1), fast, 1, one, 45, .02},
		{"bucket, queue", tokens(50, 1), fast, 1, queue, 45, .02},
		// With jitter of the network, attempts 20 ms apart often arrive less than 20 ms apart.
		{"bucket, 50 ms", tokens(50, 1), slow, 1, queue, 24, .02},
		{"bucket with bursts", tokens(50, 20), fast, 1, one, 48, .02},
		{"bucket with bursts, fixed", tokens(50, 20), fast, 1, fixed, 48, .02},
		{"bucket with bursts, 50 ms", tokens(50, 20), slow, 1, queue, 48, .02},
		{"slow bucket", tokens(2, 1), fast, 1, one, 1.5, .2},
		{"in any second", sliding(100), fast, 1, queue, 95, .01},
		{"in each second", perWindow(100, time.Second), fast, 1, queue, 95, .05},
		{"in each 10 s", perWindow(100, 10*time.Second), fast, 1, queue, 9.9, .25},
		{"5 s of 30 s", quota(30*time.Second, 5*time.Second), fast, 1, queue, 800, .01},
		{"5 s of 30 s, one", quota(30*time.Second, 5*time.Second), slow, 1, one, 14, .03},
		{"above 5 at once", concurrent(5), slow, 1, linear, 100, .01},
		{"eight senders", sliding(100), fast, 8, queue, 95, .01},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := &throttler{
				roundTrip: c.roundTrip, jitter: .1, service: time.Millisecond,
				senders: c.senders, admits: c.admits,
			}
			r := x.run(t, c.window, 90)
			_, first := r.between(0, 10)
			rate, share := r.between(30, 90)
			line := fmt.Sprintf("%.1f/s, %.1f %% refused, %.0f %% in the first 10 s", rate,
				100*share, 100*first)
			if t.Log(line); rate < c.rate || share > c.share || first > .65 {
				t.Errorf("%s; want %g/s, and at most %g %% refused, 65 %% in the first 10 s", line,
					c.rate, 100*c.share)
			}
		})
	}
}

// TestAlwaysThrottled checks that a worker that refuses everything gets about one attempt per
// second, and fewer after a minute.
func TestAlwaysThrottled(t *testing.T) {
	for _, win := range []window.Algorithm{window.Queue{}, window.Linear{}, window.Fixed{Size: 4}} {
		delivered := 0
		x := &throttler{roundTrip: 2 * time.Millisecond, service: time.Millisecond}
		x.admits = func(now time.Duration, _ int) bool {
			delivered += one(now < 5*time.Second)
			return now < 5*time.Second
		}
		r := x.run(t, win, 300)
		_, share := r.between(6, 300)
		if share != 1 || delivered == 0 {
			t.Fatalf("%s: %d deliveries, then %g refused", win.Name(), delivered, share)
		}
		minute, rest := 0, 0
		for i, n := range r.refused {
			if i < 65 {
				minute += n
			} else {
				rest += n
			}
		}
		// The first refusal may concern all attempts in flight.
		line := fmt.Sprintf("%s: %d attempts in the first minute of refusals, and %d in the next 4",
			win.Name(), minute, rest)
		if t.Log(line); minute > 200 || rest > 30 {
			t.Error(line)
		}
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestThrottleWaits checks the waits after refusals without a stated time.
func TestThrottleWaits(t *testing.T) {
	w := newLanes(t, control.Config{}, 3, 1)
	deliver := func() {
		t.Helper()
		sent := w.running()
		w.pass(10 * ms)
		for _, x := range sent {
			w.answer(x, control.Delivered, 0)
		}
	}
	offer := func() {
		for w.offer(1, 10) {
		}
	}
	for range 20 {
		offer()
		deliver()
	}
	offer()
	most := 12 * ms
	for range 8 { // refused eight times
		w.pass(10 * ms)
		for _, x := range w.running() {
			w.answer(x, control.Throttled, 0)
		}
		wait := w.m.Status().Lanes[0].Until - w.now
		if wait > most || wait < most/4 {
			t.Fatalf("the wait is %v, want about %v", wait, most)
		}
		most = min(2*most, sec)
		w.pass(wait)
		offer()
		if n := len(w.running()); n != 1 {
			t.Fatalf("%d attempts in flight after a refusal, want 1", n)
		}
	}
	for range 7 { // each delivery halves the wait: 1 s / 2^7 is less than a round trip
		offer()
		if n := len(w.running()); n != 1 {
			t.Fatalf("%d attempts in flight, want 1", n)
		}
		deliver()
	}
	offer()
	if n := len(w.running()); n != 3 {
		t.Errorf("%d attempts in flight after the deliveries, want 3", n)
	}
	w.drain()
}

// TestSlowLimitEnds checks that a rate limit below one attempt per second ends after the worker has
// stopped refusing.
func TestSlowLimitEnds(t *testing.T) {
	const recovered = 10 * time.Minute
	slow := tokens(.2, 1)
	x := &throttler{roundTrip: 2 * time.Millisecond, jitter: .1, service: time.Millisecond}
	x.admits = func(now time.Duration, held int) bool { return now >= recovered || slow(now, held) }
	r := x.run(t, window.Queue{}, 1800)
	before, _ := r.between(0, 600)
	after, _ := r.between(1300, 1800) // a higher rate is tested after at most 10 min
	if t.Logf("%.2f/s, then %.0f/s", before, after); before > .21 || after < 900 {
		t.Error("want .2/s, then more than 900/s")
	}
}

// TestRejectedEndsTheThrottle checks that a rejection shortens the waits like a delivery, because
// it also shows that the worker accepts attempts. Otherwise a worker that rejects a record of each
// batch would get one batch at a time.
func TestRejectedEndsTheThrottle(t *testing.T) {
	for _, outcome := range []control.Outcome{control.Delivered, control.Rejected} {
		w := newLanes(t, control.Config{}, 3, 1)
		round := func(outcome control.Outcome) (n int) {
			for w.offer(1, 10) {
			}
			sent := w.running()
			w.pass(10 * ms)
			for _, x := range sent {
				w.answer(x, outcome, 0)
			}
			return len(sent)
		}
		for range 20 {
			round(control.Delivered)
		}
		round(control.Throttled)
		w.pass(20 * ms)
		if n := round(outcome); n != 1 {
			t.Fatalf("%d attempts in flight after a refusal, want 1", n)
		}
		if n := round(outcome); n != 3 {
			t.Errorf("%d attempts in flight after %v, want 3", n, outcome)
		}
		w.drain()
	}
}
