package flow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/sim/flow"
	"github.com/penstock-io/penstock/flow/control"
)

// grouped runs a scenario and says whether its sender takes the lanes for a group at the end.
func grouped(t *testing.T, s *flow.Scenario, algorithm string, seed uint64) (f flow.Figures, together bool) {
	t.Helper()
	spec := find(t, algorithm)
	m, err := control.New(s.Config(spec, seed))
	if err != nil {
		t.Fatal(err)
	}
	var out []control.Command
	f, err = flow.Run(s, spec, flow.Options{Seed: seed, Trace: func(e *control.Event, _ []control.Command) { out = m.Step(*e, out[:0]) }})
	if err != nil {
		t.Fatal(err)
	}
	return f, strings.Contains(m.Status().Lanes[0].Reason, "shares what is behind it")
}

// TestLanesThatShare: one server behind all workers is found out, whatever its service, and its queue is bounded once.
func TestLanesThatShare(t *testing.T) {
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
	for _, service := range []string{"deterministic", "exponential"} {
		for _, slots := range []int{1, 4} {
			f, together := grouped(t, parse(t, fmt.Sprintf(shared, service, slots)), "queue", 11)
			if !together || f[flow.RTTP50] > 60 || f[flow.Goodput] < 0.97 {
				t.Errorf("%s service, %d slots: a group %v, median round trip %.0f ms, goodput %.3f; want one, 60 ms, 0.97",
					service, slots, together, f[flow.RTTP50], f[flow.Goodput])
			}
		}
	}
}

// TestLanesOnTheirOwn: workers that share nothing are not taken for a group, also where all change at once.
func TestLanesOnTheirOwn(t *testing.T) {
	for _, text := range []string{
		"service: exponential\n" + twelve,
		"service: deterministic\nworkers: [ { count: 12, rate: 50 } ]\nnetwork: { rtt: 10ms }\n",
		"service: exponential\nevents: [ { at: 20s, for: 10s, workers: all, rate: x0.2 } ]\n" + twelve,
	} {
		s := parse(t, "duration: 60s\nwarmup: 20s\nload: saturated\n"+text)
		if f, together := grouped(t, s, "queue", 12); together || f[flow.Goodput] < 0.95 {
			t.Errorf("%sa group: %v, goodput %.3f; want none, and 0.95", text, together, f[flow.Goodput])
		}
	}
}
