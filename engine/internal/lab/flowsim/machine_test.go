package flowsim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/internal/testsize"
)

// starts are the attempts of one run that lie in an interval, by worker.
type starts struct {
	from, to time.Duration
	byWorker [12]int
	hedged   int
}

func (s *starts) all() (n int) {
	for _, k := range s.byWorker {
		n += k
	}
	return n
}

// observed runs a scenario like run, and counts attempts in n.
func observed(t testing.TB, s *scenario.Scenario, spec *flowsim.Spec, seed uint64,
	n *starts) scenario.Figures {
	t.Helper()
	f, err := flowsim.Run(s, spec, flowsim.Options{Seed: seed,
		Trace: func(e *control.Event, do []control.Command) {
			if e.Now < n.from || e.Now >= n.to {
				return
			}
			for _, c := range do {
				if c.Kind != control.Start {
					continue
				}
				n.byWorker[c.Lane]++
				if c.Reason == control.HedgeAttempt {
					n.hedged++
				}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// seeds returns how many seeds a test runs: n for make test-full, or 1.
func seeds(n uint64) uint64 { return testsize.Of(1, n) }

func TestLinearSaturated(t *testing.T) {
	for algorithm, n := range map[string]uint64{"linear": 5, "linear+round_robin": 2} {
		for seed := range seeds(n) {
			f := run(t, parse(t, "duration: 120s\nwarmup: 40s\nload: saturated\n"+twelve),
				algorithm, seed)
			if f[scenario.Goodput] < 0.97 {
				t.Errorf("%s, seed %d: goodput is %.3f of the optimum, want 0.97", algorithm, seed,
					f[scenario.Goodput])
			}
		}
	}
}

func TestFaultyWorkerAt60Percent(t *testing.T) {
	for _, c := range []struct {
		name, fault string
		outcome     control.Outcome
	}{
		{"hang", "hang: true", 0},
		{"black hole", "fail: { after: 6ms }", control.Retryable},
		{"misconfigured", "fail: { after: 0s }", control.Misconfigured},
	} {
		for seed := range seeds(3) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				s := parse(t, "duration: 120s\nwarmup: 20s\nload: { poisson: 0.6 }\n"+
					"events: [ { at: 40s, for: 60s, workers: [0], "+c.fault+" } ]\n"+twelve)
				s.Events[0].Outcome = c.outcome
				f := run(t, s, "linear", seed)
				if f[scenario.BadShare] > 0.01 {
					t.Errorf("%.4f of the attempts went into the faulty worker, want at most 0.01",
						f[scenario.BadShare])
				}
				if f[scenario.LatencyP99] > 250 {
					t.Errorf("p99 latency is %.0f ms, want at most 250", f[scenario.LatencyP99])
				}
			})
		}
	}
}

// TestLeastCompletionBeatsRoundRobin checks that, at 60 % load, the 99th percentile of the latency
// with least completion is at most half of that with round robin.
func TestLeastCompletionBeatsRoundRobin(t *testing.T) {
	p99 := map[string][]float64{}
	for _, algorithm := range []string{"linear", "linear+round_robin"} {
		for seed := range seeds(3) {
			n := starts{from: 20 * time.Second, to: 80 * time.Second}
			s := parse(t, "duration: 80s\nwarmup: 20s\nload: { poisson: 0.6 }\n"+twelve)
			f := observed(t, s, find(t, algorithm), seed, &n)
			p99[algorithm] = append(p99[algorithm], f[scenario.LatencyP99])
			if i := slices.Index(n.byWorker[:], 0); i >= 0 {
				t.Errorf("%s, seed %d: worker %d was never used", algorithm, seed, i)
			}
		}
	}
	least, robin := slices.Max(p99["linear"]), slices.Min(p99["linear+round_robin"])
	if least > robin/2 || least > 140 {
		t.Errorf("p99 of least completion is %.0f ms, of round robin %.0f ms; "+
			"want at most half and 140 ms", least, robin)
	}
}

// TestHashTakesFiveTimesAsLong compares two variants of a finite job, like the article on which
// flow control is based. In one variant, items are bound to workers by hash and windows do not
// adapt, so the job waits for the slowest worker. It must take at least five times as long as the
// other variant, with windows that adapt (linear) and free choice of the worker (least completion).
func TestHashTakesFiveTimesAsLong(t *testing.T) {
	job := func(algorithm, timeout string) float64 {
		s := parse(t, "duration: 1h\nload: { batches: 5000 }\ntimeout: "+timeout+"\n"+twelve)
		took := run(t, s, algorithm, 1)[scenario.Finish]
		if took >= s.Duration.Seconds() {
			t.Fatalf("%s did not finish within %v", algorithm, s.Duration)
		}
		return took
	}
	before, after := job("fixed:4+hash", "24h"), job("linear", "auto")
	if before < 5*after {
		t.Errorf("hash dispatch takes %.1f s, least completion %.1f s; "+
			"want at least 5 times as long", before, after)
	}
}

// TestColdStart checks the start with one worker that responds in 100 ms regardless of the load.
// The window begins at 1 and grows by one per round trip. After 31 round trips, 496 batches are
// delivered, so 500 batches take at least 3.2 s.
func TestColdStart(t *testing.T) {
	s := parse(t, "duration: 1m\nload: { batches: 500 }\nservice: deterministic\nworkers: "+
		"[ { rate: 2000, slots: 200 } ]\n")
	if took := run(t, s, "linear", 0)[scenario.Finish]; took > 3.5 {
		t.Errorf("500 batches took %.2f s, want at most 3.5", took)
	}
}

// TestRecovery checks the recovery of six of twelve workers, which fail for 30 s and recover
// together. One probe of each worker must be enough to use it again.
func TestRecovery(t *testing.T) {
	bad := []int{0, 1, 4, 5, 8, 10}
	for _, fault := range []string{"fail: { after: 5ms }", "hang: true"} {
		for seed := range seeds(2) {
			n := starts{from: 30 * time.Second, to: 60 * time.Second}
			s := parse(t, "duration: 100s\nwarmup: 65s\nload: saturated\n"+
				"events: [ { at: 30s, for: 30s, workers: [0, 1, 4, 5, 8, 10], "+fault+
				" } ]\n"+twelve)
			f := observed(t, s, find(t, "linear"), seed, &n)
			if f[scenario.Goodput] < 0.95 {
				t.Errorf("%s, seed %d: goodput is %.3f of the optimum from 5 s after they are back",
					fault, seed, f[scenario.Goodput])
			}
			hits := 0
			for _, i := range bad {
				hits += n.byWorker[i]
			}
			if float64(hits) > 0.04*float64(n.all()) || n.all() == 0 {
				t.Errorf("%s, seed %d: %d of %d attempts went into workers that failed", fault,
					seed, hits, n.all())
			}
		}
	}
}

// TestOutage checks that few attempts are made while all workers fail for a minute, and that
// goodput recovers within 10 s.
func TestOutage(t *testing.T) {
	n := starts{from: 20 * time.Second, to: 80 * time.Second}
	s := parse(t, "duration: 120s\nwarmup: 90s\nload: saturated\n"+
		"events: [ { at: 20s, for: 60s, workers: all, fail: { after: 5ms } } ]\n"+twelve)
	f := observed(t, s, find(t, "linear"), 0, &n)
	if n.all() > 300 {
		t.Errorf("%d attempts in a minute in which everything fails", n.all())
	}
	if f[scenario.Goodput] < 0.95 {
		t.Errorf("goodput is %.3f of the optimum from 10 s after the outage", f[scenario.Goodput])
	}
}

// TestBrownOut checks a run with 60 % load in which all workers are five times slower for a minute.
// There must be no storm of redeliveries, neither in this minute nor after it.
func TestBrownOut(t *testing.T) {
	s := parse(t, "duration: 240s\nwarmup: 10s\nload: { poisson: 0.6 }\n"+
		"events: [ { at: 30s, for: 60s, workers: all, rate: x0.2 } ]\n"+twelve)
	f := run(t, s, "linear", 0)
	if f[scenario.AttemptsPerBatch] > 1.1 {
		t.Errorf("%.3f attempts a batch, want at most 1.1", f[scenario.AttemptsPerBatch])
	}
	if f[scenario.Goodput] < 0.98 {
		t.Errorf("goodput is %.3f of what arrived", f[scenario.Goodput])
	}
}

// TestHedgeShortensTheTail checks that hedges for at most 2 % of the attempts shorten the 99.9th
// percentile of the latency by at least a quarter. Every three seconds, another of the twelve
// workers is slowed down to a hundredth for half a second.
func TestHedgeShortensTheTail(t *testing.T) {
	s := parse(t, "duration: 300s\nwarmup: 20s\nload: { poisson: 0.25 }\ntimeout: 2s\nnetwork: "+
		"{ rtt: 10ms }\n"+
		"workers: [ { count: 12, rate: 50 } ]\n")
	for at := 5 * time.Second; at < s.Duration; at += 3 * time.Second {
		s.Events = append(s.Events, scenario.Event{
			Kind: scenario.Rate, Factor: 0.01, At: at, For: 500 * time.Millisecond,
			Workers: []int{int(at/time.Second) / 3 % 12},
		})
	}
	play := func(share float64) (float64, starts) {
		n := starts{to: s.Duration}
		spec := find(t, "queue")
		spec.Hedge = share
		return observed(t, s, spec, 5, &n)[scenario.LatencyP999], n
	}
	slow, _ := play(0)
	quick, n := play(0.02)
	share := float64(n.hedged) / float64(n.all()-n.hedged)
	t.Logf("p99.9 %.0f ms without and %.0f ms with %d hedges, %.2f %%", slow, quick, n.hedged,
		100*share)
	if quick > slow*3/4 || share > 0.02 || n.hedged == 0 {
		t.Errorf("p99.9 %.0f ms with, %.0f ms without; %.2f %% hedges", quick, slow, 100*share)
	}
}
