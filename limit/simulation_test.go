package limit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/internal/kernel"
)

const ms = time.Millisecond

// simulated is a server that serves a number of calls at once (its places), with a
// first-in-first-out queue for further calls. Its clients are behind a network and always have
// callers waiting. Time is virtual.
type simulated struct {
	places  int
	service func(now time.Duration, random *rand.Rand) time.Duration
	network time.Duration // round trip
	clients int
	span    time.Duration
	warmUp  time.Duration
}

// result holds the figures of a run after its warm-up.
type result struct {
	goodput   float64       // calls a second
	roundTrip time.Duration // mean
	waiting   float64       // mean number of calls in the server's queue
}

func (r result) String() string {
	return fmt.Sprintf("%.1f/s, round trip %v, %.2f waiting", r.goodput, r.roundTrip.Round(ms/100),
		r.waiting)
}

// callEvent is a step of one call.
type callEvent struct {
	kind step
	call simulatedCall
}

type step int

const (
	arrives step = iota
	served
	returns
)

type simulatedCall struct {
	client int
	handle handle
	start  time.Duration
}

func (s simulated) run(algorithm window.Algorithm, seed uint64) result {
	random := kernel.Rand(seed, 1)
	var (
		events  kernel.Kernel[callEvent]
		clients []*admission
		queue   []simulatedCall
		busy    int
		area    float64 // of the queue over time
		since   time.Duration
		trips   time.Duration
		n       int
	)
	fill := func(now time.Duration) {
		for i, a := range clients {
			for a.hasRoom() {
				events.At(now+s.network/2, callEvent{arrives, simulatedCall{i, a.start(now), now}})
			}
		}
	}
	for range s.clients {
		o := Options{Window: algorithm}.withDefaults()
		clients = append(clients, newAdmission(o, time.Duration(random.IntN(20))*ms))
	}
	fill(1)
	for e, ok := events.Next(s.span); ok; e, ok = events.Next(s.span) {
		now := events.Now()
		if now > s.warmUp {
			area += float64(len(queue)) * (now - max(since, s.warmUp)).Seconds()
		}
		since = now
		switch e.kind {
		case arrives:
			queue = append(queue, e.call)
		case served:
			busy--
			events.After(s.network/2, callEvent{returns, e.call})
		case returns:
			if now > s.warmUp {
				n++
				trips += now - e.call.start
			}
			clients[e.call.client].finish(now, e.call.handle, Success)
			fill(now)
		}
		for busy < s.places && len(queue) > 0 {
			busy++
			events.After(s.service(now, random), callEvent{served, queue[0]})
			queue = queue[1:]
		}
	}
	span := (s.span - s.warmUp).Seconds()
	return result{float64(n) / span, trips / time.Duration(max(n, 1)), area / span}
}

// mean runs s with several seeds.
func (s simulated) mean(algorithm window.Algorithm, seeds int) (sum result) {
	for seed := range uint64(seeds) {
		r := s.run(algorithm, seed)
		sum.goodput += r.goodput / float64(seeds)
		sum.waiting += r.waiting / float64(seeds)
		sum.roundTrip += r.roundTrip / time.Duration(seeds)
	}
	return sum
}

// best returns the goodput of the best constant limit for a server of 8 places with a
// first-in-first-out queue. A limit of 32 is best: 32 calls keep all places busy at all times.
func (s simulated) best(seeds int) float64 { return s.mean(window.Fixed{Size: 32}, seeds).goodput }

// notUnderRace skips a simulation if the flag -short is set. Tests with the race detector set this
// flag. A simulation has only one goroutine, so the detector would find nothing in it.
func notUnderRace(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: a long simulation in one goroutine")
	}
}

func constant(time.Duration, *rand.Rand) time.Duration { return 20 * ms }

func exponential(_ time.Duration, random *rand.Rand) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(20*ms))
}

// slowing returns service times that are four times as long in every second half minute.
func slowing(now time.Duration, random *rand.Rand) time.Duration {
	d := exponential(now, random)
	if now/(30*time.Second)%2 == 1 {
		d *= 4
	}
	return d
}

// bimodal returns service times that are eleven times as long for one call in ten.
func bimodal(_ time.Duration, random *rand.Rand) time.Duration {
	if random.Float64() < 0.1 {
		return time.Duration(random.ExpFloat64() * float64(110*ms))
	}
	return time.Duration(random.ExpFloat64() * float64(10*ms))
}

func uniform(_ time.Duration, random *rand.Rand) time.Duration {
	return 10*ms + time.Duration(random.Int64N(int64(20*ms)))
}

func lognormal(_ time.Duration, random *rand.Rand) time.Duration {
	const sigma = 0.8
	return time.Duration(math.Exp(sigma*random.NormFloat64()-sigma*sigma/2) * float64(20*ms))
}

// TestGoodputAtServersOfEightPlaces checks the windows that keep a longer queue than the default
// limit does. At a server that serves 8 calls at once, they must reach 0.98 of the goodput of the
// best constant limit.
func TestGoodputAtServersOfEightPlaces(t *testing.T) {
	notUnderRace(t)
	for _, v := range []struct {
		name    string
		service func(time.Duration, *rand.Rand) time.Duration
		clients int
		waiting float64 // at most, in the server's queue
	}{
		{"constant", constant, 1, 2},
		{"exponential", exponential, 1, 9},
		{"slowing fourfold", slowing, 1, 13},
		{"constant, 4 clients", constant, 4, 20},
		{"exponential, 4 clients", exponential, 4, 28},
		{"slowing fourfold, 4 clients", slowing, 4, 36},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := simulated{8, v.service, 2 * ms, v.clients, 3 * time.Minute, 10 * time.Second}
			best := s.best(4)
			for _, a := range []window.Algorithm{window.Queue{}, window.AIMD{}} {
				r := s.mean(a, 4)
				t.Logf("%s: %.3f of the best constant goodput, %.1f waiting at the server",
					a.Name(), r.goodput/best, r.waiting)
				if r.goodput < 0.98*best || r.waiting > v.waiting {
					t.Errorf("%s: want at least 0.98 of the goodput with at most %v waiting",
						a.Name(), v.waiting)
				}
			}
		})
	}
}

// TestGoodputAtAFarServer checks that limits reach 0.9 of the capacity of a server that serves 64
// calls at once, each in 20ms, behind 100ms of network. So 64 * 120/20 = 384 calls in flight keep
// it busy. If a limiter took the base round trip for a few percent shorter than it is, dozens of
// these calls would seem to wait in a queue.
func TestGoodputAtAFarServer(t *testing.T) {
	notUnderRace(t)
	s := simulated{64, exponential, 100 * ms, 1, 90 * time.Second, 45 * time.Second}
	const capacity = 64 * 50
	for _, a := range []window.Algorithm{window.Queue{}, window.Queue{Short: true}} {
		for seed := range uint64(3) {
			if r := s.run(a, seed); r.goodput < 0.9*capacity {
				t.Errorf("%+v, seed %d: %v, want 0.9 of %d/s", a, seed, r, capacity)
			}
		}
	}
}

// TestShortQueue checks that the default limit keeps a short queue at many kinds of servers. For
// comparison: with exponential service times, a constant limit that reaches 0.98 of the goodput
// keeps at least 0.8 calls waiting.
func TestShortQueue(t *testing.T) {
	notUnderRace(t)
	for _, v := range []struct {
		name    string
		service func(time.Duration, *rand.Rand) time.Duration
		network time.Duration
		clients int
		goodput float64 // of the best constant limit's, at least
		waiting float64 // at most
	}{
		{"constant", constant, 2 * ms, 1, 0.99, 1.3},
		{"exponential", exponential, 2 * ms, 1, 0.97, 1.4},
		{"slowing fourfold", slowing, 2 * ms, 1, 0.965, 1.3},
		{"exponential, 4 clients", exponential, 2 * ms, 4, 0.985, 5},
		{"slowing fourfold, 4 clients", slowing, 2 * ms, 4, 0.98, 4.5},
		{"lognormal", lognormal, 2 * ms, 1, 0.975, 2},
		{"uniform", uniform, 2 * ms, 1, 0.98, 3},
		{"bimodal", bimodal, 2 * ms, 1, 0.95, 3},
		{"exponential, far", exponential, 20 * ms, 1, 0.955, 4.5},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := simulated{8, v.service, v.network, v.clients, 2 * time.Minute, 20 * time.Second}
			const seeds = 6
			best, r := s.best(seeds), s.mean(Options{}.withDefaults().Window, seeds)
			t.Logf("%.3f of the best constant goodput, %.2f waiting at the server", r.goodput/best,
				r.waiting)
			if r.goodput < v.goodput*best || r.waiting > v.waiting {
				t.Errorf("want at least %v of the goodput with at most %v waiting", v.goodput,
					v.waiting)
			}
		})
	}
}

// TestShortQueueStarts checks that the limit recovers within seconds from a bad start: the first
// few calls are so short or so long that the measured round trip is far off.
func TestShortQueueStarts(t *testing.T) {
	notUnderRace(t)
	s := simulated{8, exponential, 2 * ms, 1, 40 * time.Second, 20 * time.Second}
	const capacity = 8 * 50
	for _, seed := range []uint64{64, 101, 224, 235, 273, 282, 319, 363, 385, 392} {
		if r := s.run(window.Queue{Short: true}, seed); r.goodput < 0.75*capacity || r.waiting > 4 {
			t.Errorf("seed %d: %v, want 0.75 of %d/s", seed, r, capacity)
		}
	}
}

// TestShortQueueOfASharedProcessor checks that the limit stays near the 8 processors of a server
// without a queue. This server works on all calls at the same time: with more than 8 calls, each of
// them takes longer.
func TestShortQueueOfASharedProcessor(t *testing.T) {
	const processors, step = 8, ms / 4
	for seed := range uint64(2) {
		random := kernel.Rand(seed, 1)
		a := newAdmission(Options{}.withDefaults(), 0)
		type call struct {
			handle handle
			left   float64 // seconds of one processor
		}
		var calls []call
		var n int
		var area float64
		for now := step; now < 60*time.Second; now += step {
			for a.hasRoom() {
				calls = append(calls, call{a.start(now), random.ExpFloat64() * 0.02})
			}
			part := step.Seconds() * min(1, processors/float64(len(calls)))
			running := calls[:0]
			for _, c := range calls {
				if c.left -= part; c.left > 0 {
					running = append(running, c)
					continue
				}
				a.finish(now, c.handle, Success)
				if now > 20*time.Second {
					n++
				}
			}
			calls = running
			if now > 20*time.Second {
				area += float64(a.inFlight) * step.Seconds()
			}
		}
		goodput, inFlight := float64(n)/40/(processors/0.02), area/40
		t.Logf("%.3f of the capacity, %.1f in flight", goodput, inFlight)
		if goodput < 0.9 || inFlight > 2*processors {
			t.Errorf("seed %d: %.3f of the capacity with %.1f in flight, want 0.9 with at most %d",
				seed, goodput, inFlight, 2*processors)
		}
	}
}
