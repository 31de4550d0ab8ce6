package limit

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

const ms = time.Millisecond

// simulated is a server with a number of places and a first-in-first-out queue behind a network, and clients that
// always have callers waiting. Time is virtual.
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
	return fmt.Sprintf("%.1f/s, round trip %v, %.2f waiting", r.goodput, r.roundTrip.Round(ms/100), r.waiting)
}

type callEvent struct {
	at     time.Duration
	serial int
	kind   int // arrives, served, returns
	call   *simulatedCall
}

type simulatedCall struct {
	client *admission
	handle handle
	start  time.Duration
}

type calendar []callEvent

func (c calendar) Len() int { return len(c) }
func (c calendar) Less(i, j int) bool {
	return c[i].at < c[j].at || c[i].at == c[j].at && c[i].serial < c[j].serial
}
func (c calendar) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *calendar) Push(x any)   { *c = append(*c, x.(callEvent)) }
func (c *calendar) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}

const (
	arrives = iota
	served
	returns
)

func (s simulated) run(algorithm window.Algorithm, seed uint64) result {
	random := rand.New(rand.NewPCG(seed, 1))
	var (
		events  calendar
		serial  int
		clients []*admission
		queue   []*simulatedCall
		busy    int
		area    float64 // of the queue over time
		since   time.Duration
		trips   time.Duration
		n       int
	)
	schedule := func(at time.Duration, kind int, c *simulatedCall) {
		serial++
		heap.Push(&events, callEvent{at, serial, kind, c})
	}
	fill := func(now time.Duration) {
		for _, a := range clients {
			for a.hasRoom() {
				schedule(now+s.network/2, arrives, &simulatedCall{a, a.start(now), now})
			}
		}
	}
	for range s.clients {
		o := Options{Window: algorithm}.withDefaults()
		clients = append(clients, newAdmission(o, time.Duration(random.IntN(20))*ms))
	}
	fill(1)
	for len(events) > 0 {
		e := heap.Pop(&events).(callEvent)
		if e.at >= s.span {
			break
		}
		if e.at > s.warmUp {
			area += float64(len(queue)) * (e.at - max(since, s.warmUp)).Seconds()
		}
		since = e.at
		switch e.kind {
		case arrives:
			queue = append(queue, e.call)
		case served:
			busy--
			schedule(e.at+s.network/2, returns, e.call)
		case returns:
			if e.at > s.warmUp {
				n++
				trips += e.at - e.call.start
			}
			e.call.client.finish(e.at, e.call.handle, Success)
			fill(e.at)
		}
		for busy < s.places && len(queue) > 0 {
			busy++
			schedule(e.at+s.service(e.at, random), served, queue[0])
			queue = queue[1:]
		}
	}
	span := (s.span - s.warmUp).Seconds()
	return result{float64(n) / span, trips / time.Duration(max(n, 1)), area / span}
}

func constant(time.Duration, *rand.Rand) time.Duration { return 20 * ms }

func exponential(_ time.Duration, random *rand.Rand) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(20*ms))
}

// slowing takes four times as long in every second half minute.
func slowing(now time.Duration, random *rand.Rand) time.Duration {
	d := exponential(now, random)
	if now/(30*time.Second)%2 == 1 {
		d *= 4
	}
	return d
}

// TestGoodputAtServersOfEightPlaces compares the limits with the best constant limit, which has to be found by trial.
func TestGoodputAtServersOfEightPlaces(t *testing.T) {
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
			for _, a := range []window.Algorithm{window.Queue{}, window.AIMD{}} {
				goodput, waiting := 0.0, 0.0
				seeds := 4
				if testing.Short() {
					seeds = 1
				}
				for seed := range uint64(seeds) {
					best := 0.0
					for _, n := range []int{2, 3, 4, 8, 12, 16, 32} {
						best = max(best, s.run(window.Fixed{Size: n}, seed).goodput)
					}
					r := s.run(a, seed)
					goodput += r.goodput / best / float64(seeds)
					waiting += r.waiting / float64(seeds)
				}
				t.Logf("%s: %.3f of the best constant goodput, %.1f waiting at the server", a.Name(), goodput, waiting)
				if goodput < 0.98 || waiting > v.waiting {
					t.Errorf("%s: want at least 0.98 of the goodput with at most %v waiting", a.Name(), v.waiting)
				}
			}
		})
	}
}

// TestGoodputAtAFarServer: a server of 64 places behind 100ms of network needs 384 calls in flight. A base round trip
// that is a few percent too low would pass for dozens of them waiting.
func TestGoodputAtAFarServer(t *testing.T) {
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

// TestShortQueue: the default keeps a fraction of the queue of window.Queue{} and nearly all of its goodput.
func TestShortQueue(t *testing.T) {
	for _, v := range []struct {
		name    string
		service func(time.Duration, *rand.Rand) time.Duration
		clients int
		goodput float64 // of that of window.Queue{}, at least
		waiting float64 // of that of window.Queue{}, at most
	}{
		{"exponential", exponential, 1, 0.97, 0.5},
		{"slowing fourfold", slowing, 1, 0.94, 0.5},
		{"exponential, 4 clients", exponential, 4, 0.98, 0.5},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := simulated{8, v.service, 2 * ms, v.clients, 3 * time.Minute, 10 * time.Second}
			var short, long result
			for seed := range uint64(4) {
				a, b := s.run(Options{}.withDefaults().Window, seed), s.run(window.Queue{}, seed)
				short.goodput, short.waiting = short.goodput+a.goodput, short.waiting+a.waiting
				long.goodput, long.waiting = long.goodput+b.goodput, long.waiting+b.waiting
			}
			goodput, waiting := short.goodput/long.goodput, short.waiting/long.waiting
			t.Logf("%.3f of the goodput, %.2f of the waiting calls", goodput, waiting)
			if goodput < v.goodput || waiting > v.waiting {
				t.Errorf("want at least %v of the goodput and at most %v of the waiting calls", v.goodput, v.waiting)
			}
		})
	}
}
