package flowsim_test

import (
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// twelve is the beginning of a scenario: twelve workers of different rates, 655 batches per second
// in all, and the network.
const twelve = `workers:
  - { count: 4, rate: 100 }
  - { count: 4, rate: 50 }
  - { count: 2, rate: 20 }
  - { count: 1, rate: 10 }
  - { count: 1, rate: 5 }
network: { rtt: 10ms }
`

// TestOptimum checks that the optimum takes the scenario's events into account.
func TestOptimum(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       float64
	}{
		{"saturated", "load: saturated", 655},
		{"half of it", "load: { poisson: 0.5 }", 327.5},
		{"more than all of it", "load: { poisson: 2 }", 655},
		{"one every", "load: { every: 25ms }", 40},
		{"a burst that is served", "load: { poisson: 0.5, burst: { at: 0s, batches: 655 } }",
			327.5 + 65.5},
		{"four times slower for half of the time",
			"load: saturated\nevents: [ { at: 5s, workers: { fastest: 4 }, rate: x0.25 } ]",
			655 - 150},
		{"another rate", "load: saturated\nevents: [ { at: 0s, for: 5s, workers: " +
			"[0], rate: 300 } ]", 755},
		{"a hang", "load: saturated\nevents: [ { at: 2s, for: 5s, workers: [0], hang: true } ]",
			605},
		{"a pause", "load: saturated\nevents: [ { at: 2s, for: 5s, workers: [4], pause: true } ]",
			630},
		{"errors", "load: saturated\nevents: [ { at: 2s, for: 5s, workers: all, fail: " +
			"{ after: 5ms } } ]", 327.5},
		{"half errors cost attempts, not capacity",
			"load: saturated\nevents: [ { at: 0s, workers: all, fail: { after: " +
				"5ms, share: 0.5 } } ]", 655},
		{"a throttle", "load: saturated\nevents: [ { at: 0s, workers: [0, 1], throttle: " +
			"{ rate: 30 } } ]", 655 - 140},
		{"a throttle above the rate", "load: saturated\nevents: [ { at: 0s, workers: " +
			"[0, 1], throttle: { rate: 300 } } ]", 655},
		{"pauses", "load: saturated\npauses: { every: 10s, for: 500ms, phase: random }",
			655 * 0.95},
		{"a shared server", "load: saturated\nshared: { rate: 200 }", 200},
		{"a brown-out that is made up for",
			"load: { poisson: 0.5 }\nevents: [ { at: 2s, for: 2s, workers: all, rate: x0.25 } ]",
			327.5},
		{"a window of nothing", "load: saturated\nevents: [ { at: 0s, for: 5s, workers: " +
			"[0], credit: 0 } ]", 605},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, "duration: 10s\n"+twelve+c.text)
			near(t, "optimum", run(t, s, "fixed:1", 1)[scenario.Optimum], c.want, 1e-3)
		})
	}
}

// TestWStar checks WStar, which computes the smallest sufficient total window. In small systems, it
// compares the result with a search of all windows.
func TestWStar(t *testing.T) {
	for _, rates := range [][3]int{{100, 50, 5}, {10, 10, 10}, {200, 3, 1}} {
		s := parse(t, fmt.Sprintf("duration: 10s\nload: saturated\nnetwork: { rtt: 20ms }\n"+
			"workers: [ { rate: %d }, { rate: %d }, { rate: %d } ]",
			rates[0], rates[1], rates[2]))
		best, sum := 1000, float64(rates[0]+rates[1]+rates[2])
		x := func(i, w int) float64 {
			if w == 0 {
				return 0
			}
			return throughput(w, 1, float64(rates[i]), 0.02)
		}
		for a := range 16 {
			for b := range 16 {
				for c := range 16 {
					if x(0, a)+x(1, b)+x(2, c) >= 0.99*sum {
						best = min(best, a+b+c)
					}
				}
			}
		}
		if got := s.WStar(); got != float64(best) {
			t.Errorf("rates %v: W* is %g, want %d", rates, got, best)
		}
	}
	s := parse(t, "duration: 10s\nload: saturated\nnetwork: { rtt: 20ms }\nsize: { constant: "+
		"7 }\nworkers: [ { rate: 70 } ]")
	plain := parse(t, "duration: 10s\nload: saturated\nnetwork: { rtt: 20ms }\nworkers: "+
		"[ { rate: 10 } ]")
	near(t, "W* of batches of 7", s.WStar(), 7*plain.WStar(), 1e-12)
}

// TestEvents checks that each event has its effect on its workers, and ends.
func TestEvents(t *testing.T) {
	base := "duration: 60s\nworkers: [ { rate: 100 } ]\nservice: deterministic\nnetwork: { rtt: " +
		"10ms }\nload: saturated\ntimeout: 1h\n"
	for _, c := range []struct {
		name, event string
		check       func(*testing.T, scenario.Figures)
	}{
		{"half the rate", "{ at: 30s, workers: all, rate: x0.5 }",
			func(t *testing.T, f scenario.Figures) {
				near(t, "rate", f[scenario.RateMean], 75, 0.01)
				near(t, "goodput", f[scenario.Goodput], 1, 0.01)
			}},
		{"a rate for a while", "{ at: 30s, for: 15s, workers: all, rate: 20 }",
			func(t *testing.T, f scenario.Figures) {
				near(t, "rate", f[scenario.RateMean], 80, 0.01)
				// four batches are queued, 50 ms each
				near(t, "longest round trip", f[scenario.RTTMax], 200, 0.02)
			}},
		{"a pause", "{ at: 30s, for: 6s, workers: all, pause: true }",
			func(t *testing.T, f scenario.Figures) {
				near(t, "rate", f[scenario.RateMean], 90, 0.01)
				near(t, "longest round trip", f[scenario.RTTMax], 6040, 0.01)
				near(t, "attempts", f[scenario.AttemptsPerBatch], 1, 1e-9)
			}},
		{"a hang that is never answered", "{ at: 30s, for: 6s, workers: all, hang: true }",
			func(t *testing.T, f scenario.Figures) {
				// all four slots are occupied until the attempts are abandoned
				near(t, "rate", f[scenario.RateMean], 50, 0.01)
				near(t, "p99.9", f[scenario.LatencyP999], 30_000, 0.01)
			}},
		{"a restart", "{ at: 30s, workers: all, restart: true }",
			func(t *testing.T, f scenario.Figures) {
				// three of the four batches in flight are lost, and the fourth continues, because
				// it is in the network
				near(t, "rate", f[scenario.RateMean], 75, 0.01)
			}},
		{"errors", "{ at: 30s, for: 6s, workers: all, fail: { after: 6ms } }",
			func(t *testing.T, f scenario.Figures) {
				near(t, "bad share", f[scenario.BadShare], 1, 1e-9)
				if f[scenario.AttemptsPerBatch] <= 1 || f[scenario.AttemptsPerBatch] > 1.1 {
					t.Errorf("%g attempts a batch; want a few that failed",
						f[scenario.AttemptsPerBatch])
				}
			}},
		{"a throttle", "{ at: 30s, workers: all, throttle: { rate: 10, retry_after: 1s } }",
			func(t *testing.T, f scenario.Figures) {
				if f[scenario.RejectedShare] == 0 || f[scenario.RateMean] > 50+10.0/2+0.5 {
					t.Errorf("%g of the attempts rejected, %g/s; want some, at most 55",
						f[scenario.RejectedShare], f[scenario.RateMean])
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.check(t, run(t, parse(t, base+"events: [ "+c.event+" ]"), "fixed:4", 1))
		})
	}
}

// TestThrottleTakesItsRate checks a throttled worker. It never refuses a batch of a sender that is
// not faster than the throttle's rate. From a faster sender, it accepts no more than this rate.
func TestThrottleTakesItsRate(t *testing.T) {
	text := "duration: 20s\nworkers: [ { rate: 1000 } ]\nservice: deterministic\ntimeout: 1h\n" +
		"events: [ { at: 0s, workers: all, throttle: { rate: 100, retry_after: 1ms } } ]\nload: "
	f := run(t, parse(t, text+"{ every: 10ms }"), "fixed:100", 1)
	if f[scenario.RejectedShare] != 0 {
		t.Errorf("%g of the attempts were rejected at exactly the rate", f[scenario.RejectedShare])
	}
	f = run(t, parse(t, text+"saturated"), "fixed:5", 1)
	if f[scenario.RateMean] > 105 {
		t.Errorf("%g/s were taken at a throttle of 100 in any second", f[scenario.RateMean])
	}
}

// TestPauses checks that each worker pauses for the configured share of the time, and then serves
// the batches that arrived meanwhile.
func TestPauses(t *testing.T) {
	s := parse(t, "duration: 200s\nload: saturated\ntimeout: 1h\nservice: deterministic\n"+
		"pauses: { every: 10s, for: 2s, phase: random }\n"+twelve)
	f := run(t, s, "fixed:8", 1)
	near(t, "goodput", f[scenario.Goodput], 1, 0.01)
	near(t, "optimum", f[scenario.Optimum], 655*0.8, 1e-9)
}

// TestSharedServer checks that all workers together have the rate of the shared server.
func TestSharedServer(t *testing.T) {
	s := parse(t, "duration: 100s\nwarmup: 5s\nload: saturated\ntimeout: 1h\nservice: "+
		"deterministic\n"+
		"shared: { rate: 200, slots: 1 }\n"+twelve)
	f := run(t, s, "fixed:4", 1)
	near(t, "rate", f[scenario.RateMean], 200, 0.002)
	near(t, "round trip", f[scenario.RTTMean], 48*5, 0.01)
}

// TestSenders checks that a sender that joins later gets its share, and that fairness is measured
// from that time on.
func TestSenders(t *testing.T) {
	s := parse(t, "duration: 100s\nwarmup: 10s\nload: saturated\ntimeout: 1h\nsenders: 2\njoins: "+
		"[0s, 50s]\n"+twelve)
	f := run(t, s, "fixed:4", 1)
	near(t, "jain", f[scenario.Jain], 1, 0.005)
	near(t, "in flight", f[scenario.InFlightMean], 48*(1+50.0/90), 0.01)
}

// TestLinkOptimum checks the optima given by the fixtures' authors.
func TestLinkOptimum(t *testing.T) {
	for _, c := range []struct {
		link string
		rate float64
		at   float64 // W*: at least 0.99 of it
	}{
		{"{ delay: 100ms }", 2000, 198},
		{"{ delay: 100ms, concurrency: { limit: 5, action: defer } }", 50, 5},
		{"{ delay: 100ms, rate: { limit: 100, action: defer } }", 100, 10},
		{"{ delay: 100ms, concurrency: { knee_start: 10, knee_exp: 1.1 } }", 100, 10},
		{"{ delay: 100ms, concurrency: { scale: 1 } }", 10, 1},
	} {
		s := parse(t, "duration: 1s\nload: saturated\nlink: "+c.link)
		f := run(t, s, "fixed:1", 1)
		near(t, "optimum of "+c.link, f[scenario.Optimum], c.rate, 1e-3)
		if got := s.WStar(); got != c.at {
			t.Errorf("W* of %s is %g, want %g", c.link, got, c.at)
		}
	}
}

// TestLinkDelay compares the delay with the published formula at a fixed level.
func TestLinkDelay(t *testing.T) {
	for _, c := range []struct {
		link   string
		window int
		want   float64 // ms, the longest
	}{
		{"{ delay: 100ms, concurrency: { scale: 1 } }", 4, 400},
		{"{ delay: 100ms, concurrency: { knee_start: 10, knee_exp: 1.1 } }", 12, 121},
		{"{ delay: 100ms, concurrency: { knee_start: 10, knee_exp: 1.1 } }", 9, 100},
		{"{ delay: 100ms, concurrency: { limit: 5, action: defer } }", 5, 100},
	} {
		f := run(t, parse(t, "duration: 30s\nload: saturated\ntimeout: 10s\nlink: "+c.link),
			fmt.Sprintf("fixed:%d", c.window), 1)
		near(t, fmt.Sprintf("round trip of %d at %s", c.window, c.link), f[scenario.RTTMax],
			c.want, 1e-6)
	}
	f := run(t, parse(t, "duration: 30s\nload: { batches: 20 }\ntimeout: 10s\n"+
		"link: { delay: 100ms, fail_first: { after: 2, failures: 5 } }"), "fixed:1", 1)
	near(t, "attempts", f[scenario.AttemptsPerBatch], 25.0/20, 1e-9)
}

// TestSettling checks the measured time until a run reaches the optimum (converges), or reaches it
// again after an event. With a window that keeps every parallel slot of the workers busy, the time
// is almost 0. With a smaller window, the run never converges. Lost or repeated work must not
// count.
func TestSettling(t *testing.T) {
	base := "duration: 40s\nwarmup: 1s\nload: saturated\nworkers: [ { rate: 100 }, { count: " +
		"2, rate: 8, slots: 8 } ]\n" +
		"network: { rtt: 10ms }\n"
	f := run(t, parse(t, base+"timeout: 1h"), "fixed:40+round_robin", 1)
	if f[scenario.Converge] > 0.2 {
		t.Errorf("converged after %g s with every slot busy", f[scenario.Converge])
	}
	if f = run(t, parse(t, base+"timeout: 1h"), "fixed:1+round_robin", 1); f[scenario.Converge] < 35 {
		t.Errorf("a window of one converged after %g s", f[scenario.Converge])
	}
	step := base + "timeout: 1h\nevents: [ { at: 10s, for: 10s, workers: [0], %s } ]"
	if f = run(t, parse(t, fmt.Sprintf(step, "rate: x0.1")), "fixed:40+round_robin", 1); f[scenario.Recover] > 0.2 {
		t.Errorf("recovered after %g s with every slot busy", f[scenario.Recover])
	}
	if f = run(t, parse(t, fmt.Sprintf(step, "hang: true")), "fixed:40+round_robin", 1); f[scenario.Recover] < 15 {
		t.Errorf("recovered after %g s although the worker's slots were lost permanently",
			f[scenario.Recover])
	}
	f = run(t, parse(t, base+"timeout: 100ms"), "fixed:40+round_robin", 1)
	if f[scenario.Converge] < 35 || f[scenario.DuplicatesPerBatch] < 0.01 {
		t.Errorf("converged after %g s with %g duplicates a batch", f[scenario.Converge],
			f[scenario.DuplicatesPerBatch])
	}
}

// TestStatedRateLimit checks receivers that limit the rate and state a wait in their refusals. The
// sender must learn the rate although each refusal costs the stated wait.
func TestStatedRateLimit(t *testing.T) {
	for _, c := range []struct{ name, rest string }{
		{"low rate", "workers: [ { rate: 200 } ]\nevents: [ { at: 0s, workers: all, throttle: " +
			"{ rate: 10, retry_after: 1s } } ]\nload: saturated"},
		{"limit later than the traffic", "workers: [ { rate: 4000 } ]\nevents: [ { at: 10s, " +
			"workers: all, throttle: { rate: 200, retry_after: 2s } } ]\nload: saturated"},
		{"long wait", "workers: [ { rate: 2000 } ]\nevents: [ { at: 0s, workers: all, " +
			"throttle: { rate: 100, retry_after: 5s } } ]\nload: saturated"},
		{"load below the limit", "workers: [ { rate: 1000 } ]\nevents: [ { at: 0s, workers: all, " +
			"throttle: { rate: 100, retry_after: 1s } } ]\nload: { poisson: 0.09 }"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, "duration: 120s\nwarmup: 20s\nservice: deterministic\n"+
				"network: { rtt: 20ms }\n"+c.rest)
			f := run(t, s, "queue", 1)
			good, rejected := f[scenario.Goodput], f[scenario.RejectedShare]
			if good < 0.97 || rejected > 0.02 {
				t.Errorf("goodput %.3f, %.3f of the attempts refused; want at least 0.97 and at "+
					"most 0.02", good, rejected)
			}
		})
	}
}
