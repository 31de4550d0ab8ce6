package flow

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// This file tests the Sender as metamorphic_test.go of package flowsim tests the machine, but with
// real goroutines in a synctest bubble. In a bubble, events at one instant have no fixed order. So
// the tests do not compare single attempts, but each worker's share of all attempts.

// paced is a worker that serves one item at a time.
type paced struct {
	service, network time.Duration
	fails            int      // every attempt with a number divisible by fails; 0: none
	receiver         Receiver // advertises its window if credit is true
	credit           bool

	mu       sync.Mutex
	free     time.Time
	attempts int
}

func (p *paced) Deliver(ctx context.Context, _ Attempt[int]) (Report, error) {
	p.mu.Lock()
	now := time.Now()
	begins := now.Add(p.network / 2)
	if p.free.After(begins) {
		begins = p.free
	}
	p.free = begins.Add(p.service)
	p.attempts++
	bad := p.fails > 0 && p.attempts%p.fails == 0
	p.mu.Unlock()
	if !p.credit {
		if err := sleep(ctx, begins.Sub(now)+p.service+p.network/2); err != nil || bad {
			return Report{}, failedOr(err)
		}
		return Report{}, nil
	}
	if err := sleep(ctx, p.network/2); err != nil {
		return Report{}, err
	}
	serve, done := p.receiver.Begin("the one", 1, p.network)
	if err := sleep(ctx, time.Until(begins)); err != nil {
		return done().Report, err
	}
	serve()
	if err := sleep(ctx, p.service); err != nil {
		return done().Report, err
	}
	g := done()
	if err := sleep(ctx, p.network/2); err != nil || bad {
		return g.Report, failedOr(err)
	}
	return g.Report, nil
}

func failedOr(err error) error {
	if err != nil {
		return err
	}
	return errRefused
}

// fourPaced returns four unequal workers, slowed down by the factor k. At k = 1 they serve 213
// items a second together.
func fourPaced(k time.Duration) (p []*paced) {
	for _, service := range []time.Duration{10_007_000, 12_553_000, 43_013_000, 107_003_000} {
		p = append(p, &paced{service: k * service, network: k * 20_009_000})
	}
	return p
}

// played is the result of a load at a Sender.
type played struct {
	share  []float64 // of the attempts, by worker
	window []float64 // mean, by worker
	took   time.Duration
}

// play sends n items at random times. The parameter every is the mean interval between them. If it
// is 0, items come as fast as the workers take them. Worker i has the lane at index order[i].
func play(t *testing.T, c control.Config, workers []*paced, order []int, n int,
	every time.Duration) (r played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lanes := make([]Lane[int], len(workers))
		_, credit := c.Window.(window.Credit)
		for i, w := range workers {
			w.credit = credit
			lanes[order[i]] = Lane[int]{Name: fmt.Sprint("worker ", i), Worker: w}
		}
		begun := time.Now()
		// Items arrive at random times. If they arrived at the same time, the order of the workers'
		// first answers would persist, and the result would depend on this random order.
		left, came, rnd := n, begun, rand.New(rand.NewPCG(5, 5))
		p := ProducerFunc[int](func(ctx context.Context) (Item[int], error) {
			if left--; left < 0 {
				return these[int]()(ctx)
			}
			came = came.Add(time.Duration(rnd.ExpFloat64() * float64(every)))
			return Item[int]{Value: left}, sleep(ctx, time.Until(came))
		})
		r.window = make([]float64, len(workers))
		var s *Sender[int]
		settled := 0
		s = mustSender(t,
			Options[int]{Lanes: lanes, Control: c, Settled: func(Item[int], Settlement) {
				if settled++; settled%10 != 0 {
					return
				}
				status, names := s.Status()
				for i := range workers {
					for _, l := range status.Lanes {
						if names[l.Lane] == fmt.Sprint("worker ", i) {
							r.window[i] += l.Window / float64(n/10)
						}
					}
				}
			}})
		if err := s.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		r.took = time.Since(begun)
		all := 0
		for _, w := range workers {
			all += w.attempts
		}
		for _, w := range workers {
			r.share = append(r.share, float64(w.attempts)/float64(all))
		}
	})
	return r
}

var (
	asListed = []int{0, 1, 2, 3}
	windows  = []window.Algorithm{window.Linear{}, window.AIMD{}, window.Queue{}, window.Credit{},
		window.Rate{}, window.Fixed{Size: 4}}
	policies = []dispatch.Policy{
		dispatch.LeastCompletion{}, dispatch.RoundRobin{}, dispatch.Hash{},
	}
)

// TestSenderWorseIsNotChosenMore checks that a worker with a slower network or service, or one
// that fails, gets no larger share. It does not test failures with dispatch.Hash, which sends an
// item again to the worker that failed it.
func TestSenderWorseIsNotChosenMore(t *testing.T) {
	worse := map[string]func(p *paced){
		"network": func(p *paced) { p.network *= 3 },
		"service": func(p *paced) { p.service *= 3 },
		"errors":  func(p *paced) { p.fails = 4 },
	}
	for _, win := range windows {
		for _, p := range policies {
			c := control.Config{Window: win, Dispatch: p}
			before := play(t, c, fourPaced(1), asListed, 400, 9*time.Millisecond)
			for name, change := range worse {
				if name == "errors" && p == dispatch.Policy(dispatch.Hash{}) {
					continue
				}
				w := fourPaced(1)
				change(w[0])
				after := play(t, c, w, asListed, 400, 9*time.Millisecond)
				if was, is := before.share[0], after.share[0]; is > 1.1*was+0.01 {
					t.Errorf("%s, %s: worse %s, and %.3f of the attempts; %.3f before", win.Name(),
						p.Name(), name, is, was)
				} else if p == dispatch.Policy(dispatch.LeastCompletion{}) && is > 0.9*was {
					t.Errorf("%s, %s: worse %s, and still %.3f of the attempts; %.3f before",
						win.Name(), p.Name(), name, is, was)
				}
			}
		}
	}
}

// TestSenderPermuted checks that workers keep their shares when their lanes are permuted. It
// leaves out dispatch.Hash, which binds items to lanes.
func TestSenderPermuted(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: it compares shares; others run the same code")
	}
	for _, win := range windows {
		for _, p := range policies {
			if p == dispatch.Policy(dispatch.Hash{}) {
				continue
			}
			c := control.Config{Window: win, Dispatch: p}
			for _, every := range []time.Duration{0, 9 * time.Millisecond} {
				want := play(t, c, fourPaced(1), asListed, 1000, every)
				got := play(t, c, fourPaced(1), []int{2, 0, 3, 1}, 1000, every)
				for i := range want.share {
					if math.Abs(got.share[i]-want.share[i]) > 0.05 {
						t.Errorf("%s, %s, an item every %v: shares %.3f, and %.3f in other lanes",
							win.Name(), p.Name(), every, want.share, got.share)
						break
					}
				}
			}
		}
	}
}

// plays are repeated plays in which everything takes k times as long.
type plays struct {
	k             time.Duration
	times, widths []float64
}

func (p *plays) again(t *testing.T, c control.Config) {
	w := fourPaced(p.k)
	for _, x := range w {
		x.network *= 20 // so that limits in seconds have no effect
	}
	r := play(t, c, w, asListed, 3000, p.k*3*time.Millisecond)
	p.times, p.widths = append(p.times, float64(r.took)), append(p.widths, sum(r.window))
}

func (p *plays) middle() (took time.Duration, width float64) {
	return time.Duration(middle(p.times)), middle(p.widths)
}

// like reports whether the medians equal those of q, apart from the total time.
func (p *plays) like(q *plays) bool {
	took, width := p.middle()
	tookQ, widthQ := q.middle()
	k := float64(took) / float64(tookQ) * float64(q.k)
	return math.Abs(k-float64(p.k)) <= 0.3 && math.Abs(width-widthQ) <= 0.2*widthQ
}

// TestSenderScaled compares two runs. In the second one, all times are three times as long. It must
// take about three times as long, with about the same windows. The test of the machine in package
// flowsim checks exact equality. This is not possible here, because answers at one instant come in
// any order. So items arrive at different instants, a little faster than they can be delivered.
//
// In about one run of seventy, the order of the first answers makes the start-up of a
// window.Queue or window.AIMD end early or late. So if the two runs differ, the test repeats both
// and compares the medians of five runs. It leaves out the experimental window.Rate with round
// robin: its start-ups end early about as often as late, so that medians do not help.
func TestSenderScaled(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: it compares durations; others run the same code")
	}
	for _, win := range windows {
		for _, p := range policies {
			if win == window.Algorithm(window.Rate{}) &&
				p == dispatch.Policy(dispatch.RoundRobin{}) {
				continue
			}
			c := control.Config{Window: win, Dispatch: p, Timeout: -1}
			plays := [2]plays{{k: 1}, {k: 3}}
			again := func() {
				for i := range plays {
					plays[i].again(t, c)
				}
			}
			if again(); !plays[1].like(&plays[0]) {
				for range 4 {
					again()
				}
			}
			took, width := plays[0].middle()
			tookThrice, widthThrice := plays[1].middle()
			if !plays[1].like(&plays[0]) {
				t.Errorf("%s, %s: took %v, and %v where all takes three times as long; windows "+
					"of %.4g together, and %.4g",
					win.Name(), p.Name(), took, tookThrice, width, widthThrice)
			}
		}
	}
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}
