package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/control/controltest"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// unequal is the base set of the scenarios: twelve workers, 655 items a second together.
func unequal() []controltest.Worker {
	var w []controltest.Worker
	for _, g := range []struct {
		n    int
		rate float64
	}{{4, 100}, {4, 50}, {2, 20}, {1, 10}, {1, 5}} {
		for range g.n {
			w = append(w, controltest.Worker{Rate: g.rate})
		}
	}
	return w
}

const capacity = 655

func run(t *testing.T, s controltest.Scenario) controltest.Result {
	t.Helper()
	r, err := controltest.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLinearSaturated(t *testing.T) {
	for fewer, d := range []dispatch.Policy{dispatch.LeastCompletion{}, dispatch.RoundRobin{}} {
		for seed := range uint64(5 - 3*fewer) {
			t.Run(fmt.Sprintf("%s/%d", d.Name(), seed), func(t *testing.T) {
				r := run(t, controltest.Scenario{
					Workers: unequal(), RTT: 10 * time.Millisecond, Duration: 120 * time.Second, Warmup: 40 * time.Second, Seed: seed,
					Config: control.Config{Seed: seed, Window: window.Linear{}, Dispatch: d},
				})
				t.Logf("goodput %.3f, in flight %.1f, mean round trip %v, duplicates %d",
					r.Goodput/capacity, r.InFlight, controltest.Mean(r.RTTs), r.Duplicates)
				if r.Goodput < 0.97*capacity {
					t.Errorf("goodput is %.3f of the optimum, want 0.97", r.Goodput/capacity)
				}
			})
		}
	}
}

// faulty gives worker i a fault.
func faulty(w []controltest.Worker, i int, f controltest.Fault) []controltest.Worker {
	w[i].Faults = append(w[i].Faults, f)
	return w
}

func TestFaultyWorkerAt60Percent(t *testing.T) {
	const from, to = 40 * time.Second, 100 * time.Second
	for _, c := range []struct {
		name  string
		fault controltest.Fault
		p99   time.Duration
	}{
		{"hang", controltest.Fault{Kind: controltest.Hang, From: from, To: to}, 250 * time.Millisecond},
		{"black hole", controltest.Fault{Kind: controltest.Fail, From: from, To: to, After: 6 * time.Millisecond}, 250 * time.Millisecond},
		{"misconfigured", controltest.Fault{Kind: controltest.Deny, From: from, To: to}, 250 * time.Millisecond},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				r := run(t, controltest.Scenario{
					Workers: faulty(unequal(), 0, c.fault), RTT: 10 * time.Millisecond, Load: 0.6 * capacity,
					Duration: 120 * time.Second, Warmup: 20 * time.Second, Seed: seed,
					Config: control.Config{Seed: seed},
				})
				share := float64(r.FaultyHits[0]) / float64(r.Hits)
				p99 := controltest.Quantile(r.Latencies, 0.99)
				t.Logf("goodput %.3f, share of attempts %.5f, p99 %v, duplicates %d, redeliveries %d of %d",
					r.Goodput/(0.6*capacity), share, p99, r.Duplicates, r.Status.Redeliveries, r.Status.Attempts)
				if share > 0.01 {
					t.Errorf("%.4f of the attempts went into the faulty worker, want at most 0.01", share)
				}
				if p99 > c.p99 {
					t.Errorf("p99 latency is %v, want at most %v", p99, c.p99)
				}
			})
		}
	}
}

// TestLeastCompletionBeatsRoundRobin is the article's wish for the idlest worker first, at 60 % load.
func TestLeastCompletionBeatsRoundRobin(t *testing.T) {
	p99 := map[string]time.Duration{}
	for _, d := range []dispatch.Policy{dispatch.LeastCompletion{}, dispatch.RoundRobin{}} {
		var all []time.Duration
		for seed := range uint64(3) {
			r := run(t, controltest.Scenario{
				Workers: unequal(), RTT: 10 * time.Millisecond, Load: 0.6 * capacity,
				Duration: 80 * time.Second, Warmup: 20 * time.Second, Seed: seed,
				Config: control.Config{Seed: seed, Dispatch: d},
			})
			all = append(all, r.Latencies...)
			for i, n := range r.Attempts {
				if n == 0 {
					t.Errorf("%s, seed %d: worker %d was never used", d.Name(), seed, i)
				}
			}
		}
		p99[d.Name()] = controltest.Quantile(all, 0.99)
	}
	t.Logf("p99 latencies %v", p99)
	if lect := p99["least_completion"]; lect > p99["round_robin"]/2 || lect > 140*time.Millisecond {
		t.Errorf("p99 of least completion is %v, of round robin %v; want at most half and 140 ms", lect, p99["round_robin"])
	}
}

// TestHashTakesFiveTimesAsLong is the article's before and after: a finite job bound to workers by hash, with
// no adaptive window, waits for the slowest.
func TestHashTakesFiveTimesAsLong(t *testing.T) {
	job := func(c control.Config) time.Duration {
		r := run(t, controltest.Scenario{
			Workers: unequal(), RTT: 10 * time.Millisecond, Items: 5000, Duration: time.Hour, Seed: 1, Config: c,
		})
		if r.Settled != 5000 {
			t.Fatalf("%d of 5000 settled", r.Settled)
		}
		return r.Finished
	}
	before := job(control.Config{Window: window.Fixed{Size: 4}, Dispatch: dispatch.Hash{}, Timeout: -1})
	after := job(control.Config{})
	t.Logf("hash dispatch takes %v, least completion %v", before, after)
	if before < 5*after {
		t.Errorf("hash dispatch takes %v, least completion %v; want at least 5 times as long", before, after)
	}
}

// TestColdStart: one worker that answers each in 100 ms however many are in flight; one step a round needs 31
// rounds for 500 items.
func TestColdStart(t *testing.T) {
	r := run(t, controltest.Scenario{
		Workers: []controltest.Worker{{Rate: 2000, Slots: 200}}, Fixed: true, Items: 500, Duration: time.Minute,
	})
	if r.Settled != 500 || r.Finished > 3500*time.Millisecond {
		t.Errorf("%d of 500 settled in %v, want all within 3.5 s", r.Settled, r.Finished)
	}
}

// TestRecovery: six of twelve fail for 30 s and come back at once; a probe each brings them back.
func TestRecovery(t *testing.T) {
	const from, to = 30 * time.Second, 60 * time.Second
	for _, kind := range []controltest.FaultKind{controltest.Fail, controltest.Hang} {
		for seed := range uint64(2) {
			w := unequal()
			for _, i := range []int{0, 1, 4, 5, 8, 10} {
				w = faulty(w, i, controltest.Fault{Kind: kind, From: from, To: to, After: 5 * time.Millisecond})
			}
			r := run(t, controltest.Scenario{
				Workers: w, RTT: 10 * time.Millisecond, Duration: 100 * time.Second, Warmup: to + 5*time.Second, Seed: seed,
				Config: control.Config{Seed: seed},
			})
			bad := 0
			for _, n := range r.FaultyHits {
				bad += n
			}
			t.Logf("kind %d: goodput %.3f after 5 s, %d of %d attempts into those that fail", kind, r.Goodput/capacity, bad, r.Hits)
			if r.Goodput < 0.95*capacity {
				t.Errorf("kind %d, seed %d: goodput is %.3f of the optimum from 5 s after they are back", kind, seed, r.Goodput/capacity)
			}
			if float64(bad) > 0.04*float64(r.Hits) {
				t.Errorf("kind %d, seed %d: %d of %d attempts went into workers that failed", kind, seed, bad, r.Hits)
			}
		}
	}
}

// TestOutage: everything fails for a minute; nothing is lost, few attempts are made, and it comes back.
func TestOutage(t *testing.T) {
	w := unequal()
	for i := range w {
		w = faulty(w, i, controltest.Fault{
			Kind: controltest.Fail, From: 20 * time.Second, To: 80 * time.Second, After: 5 * time.Millisecond,
		})
	}
	r := run(t, controltest.Scenario{Workers: w, RTT: 10 * time.Millisecond, Duration: 120 * time.Second, Warmup: 90 * time.Second})
	t.Logf("%d attempts in a minute of outage, goodput %.3f from 10 s after it", r.Hits, r.Goodput/capacity)
	if r.Hits > 300 {
		t.Errorf("%d attempts in a minute in which everything fails", r.Hits)
	}
	if r.Goodput < 0.95*capacity {
		t.Errorf("goodput is %.3f of the optimum from 10 s after the outage", r.Goodput/capacity)
	}
}

// TestBrownOut: everything becomes five times slower for a minute while 60 % load goes on arriving. No storm
// of redeliveries, and no second collapse.
func TestBrownOut(t *testing.T) {
	w := unequal()
	for i := range w {
		w = faulty(w, i, controltest.Fault{Kind: controltest.Slow, From: 30 * time.Second, To: 90 * time.Second, Factor: 0.2})
	}
	r := run(t, controltest.Scenario{
		Workers: w, RTT: 10 * time.Millisecond, Load: 0.6 * capacity, Duration: 240 * time.Second, Warmup: 10 * time.Second,
	})
	per := float64(r.Status.Attempts) / float64(r.Status.Settled)
	t.Logf("%.4f attempts an item, goodput %.3f, %d waiting at the end", per, r.Goodput/(0.6*capacity), r.Status.Waiting)
	if per > 1.1 {
		t.Errorf("%.3f attempts an item, want at most 1.1", per)
	}
	if r.Goodput < 0.98*0.6*capacity {
		t.Errorf("goodput is %.3f of what arrived", r.Goodput/(0.6*capacity))
	}
}
