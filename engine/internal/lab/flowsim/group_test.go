package flowsim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// grouped runs a scenario. It reports whether, at the end, its sender treats the workers as a group
// with a common window, because it has found that they share one server. The parameter reports is
// set if the workers report their load.
func grouped(t *testing.T, s *scenario.Scenario, algorithm string, reports bool,
	seed uint64) (f scenario.Figures, together bool) {
	t.Helper()
	spec := find(t, algorithm)
	spec.Reports = reports
	c := spec.Config(s, seed)
	c.Shared = true
	m, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var out []control.Command
	f, err = flowsim.Run(s, spec, flowsim.Options{
		Seed: seed, Adjust: func(c *control.Config) { c.Shared = true },
		Trace: func(e *control.Event, _ []control.Command) { out = m.Step(*e, out[:0]) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f, strings.Contains(m.Status().Lanes[0].Reason, "shares a bottleneck")
}

const shared = ` # of 24,000 services the sum varies little
duration: 120s
warmup: 40s
workers:
  - { count: 8, rate: 1000 }
service: %s
network: { rtt: 10ms }
shared: { rate: 300, slots: %d }
load: saturated
`

// TestNoGroupWithCredit checks workers that share one server and grant credit. The sender must not
// give them one common window, because it would then add up their grants.
func TestNoGroupWithCredit(t *testing.T) {
	s := parse(t, fmt.Sprintf(shared, "exponential", 1))
	f, together := grouped(t, s, "credit", true, 11)
	if together || f[scenario.Goodput] < 0.97 {
		t.Errorf("a group %v, goodput %.3f; want none, 0.97", together, f[scenario.Goodput])
	}
}

// TestLanesThatShare checks that the sender detects one server that all workers share, for any
// distribution of service times. The server's queue must then stay as short as that of a single
// worker. If the workers report how long batches wait, the queue must also stay short, but the
// sender need not detect the shared server.
func TestLanesThatShare(t *testing.T) {
	for _, service := range []string{"deterministic", "exponential"} {
		for _, slots := range []int{1, 4} {
			for _, reports := range []bool{false, true} {
				s := parse(t, fmt.Sprintf(shared, service, slots))
				f, together := grouped(t, s, "queue", reports, 11)
				if !together && !reports || f[scenario.RTTP50] > 60 || f[scenario.Goodput] < 0.97 {
					t.Errorf("%s service, %d slots, reports %v: a group %v, median round trip "+
						"%.0f ms, goodput %.3f; want one, 60 ms, 0.97", service, slots, reports,
						together, f[scenario.RTTP50], f[scenario.Goodput])
				}
			}
		}
	}
}

// TestLanesOnTheirOwn checks that the sender never takes independent workers for workers that share
// one server, even if all of them become slower at the same time.
func TestLanesOnTheirOwn(t *testing.T) {
	for _, text := range []string{
		"service: exponential\n" + twelve,
		"service: deterministic\nworkers: [ { count: 12, rate: 50 } ]\nnetwork: { rtt: 10ms }\n",
		"service: exponential\nevents: [ { at: 20s, for: 10s, workers: all, rate: x0.2 } ]\n" +
			twelve,
	} {
		s := parse(t, "duration: 60s\nwarmup: 20s\nload: saturated\n"+text)
		f, together := grouped(t, s, "queue", false, 12)
		if together || f[scenario.Goodput] < 0.95 {
			t.Errorf("%sa group: %v, goodput %.3f; want none, and 0.95", text, together,
				f[scenario.Goodput])
		}
	}
}
