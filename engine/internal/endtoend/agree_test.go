package endtoend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// agreement returns the number by which a scenario's times are divided. It is 4 in the full form,
// which gives the published figures, and larger in CI. With a larger divisor, runs are shorter and
// results less exact: with 20, random service times alone move goodput between 0.97 and 1.02.
func agreement(t *testing.T) (divisor time.Duration, full bool) {
	t.Helper()
	switch os.Getenv("PENSTOCK_AGREE") {
	case "full":
		return 4, true
	case "short":
		return 8, false
	}
	t.Skip("skipped: real servers for some 20 s, or two minutes; " +
		"run `make agree-short` or `make agree`")
	return 0, false
}

const (
	// agreeWithin is the allowed difference between the goodput of the engine and that of the
	// simulation, as a share of the optimum.
	agreeWithin = 0.05
	// agreeBad is the maximum share of the attempts that go to the failing worker. In the short
	// form, the simulated share is added to it: events take less time, so the batches that are in
	// flight when an event starts are a larger share of all batches.
	agreeBad   = 0.01
	agreeSeeds = 5 // number of simulations, of which the median counts
)

// TestAgreeSaturated, TestAgreeHang and TestAgreeBlackHole run the real engine against twelve real
// HTTP servers. They compare the results with the simulator's predictions.
func TestAgreeSaturated(t *testing.T) { agree(t, "s01-saturated", "queue", "linear") }

func TestAgreeHang(t *testing.T) { agree(t, "s06-hang", "queue") }

func TestAgreeBlackHole(t *testing.T) { agree(t, "s07-black-hole", "queue") }

func agree(t *testing.T, name string, algorithms ...string) {
	divisor, full := agreement(t)
	if !full {
		algorithms = algorithms[:1]
	}
	for _, algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			s := scaled(t, name, divisor)
			simulated := simulate(t, s, algorithm, false)
			undisturbed(t, func(t *testing.T) string {
				w := runTestbed(t, s, algorithm)
				goodput, bad := w.goodput(simulated[scenario.Optimum]), w.badShare()
				t.Logf("%s, %s, times / %d: goodput %.3f, simulated %.3f; "+
					"attempts into the failing worker %.4f, simulated %.4f",
					name, algorithm, divisor, goodput, simulated[scenario.Goodput], bad,
					simulated[scenario.BadShare])
				most := agreeBad
				if !full {
					most += simulated[scenario.BadShare]
				}
				if math.Abs(goodput-simulated[scenario.Goodput]) > agreeWithin {
					return fmt.Sprintf("goodput is %.3f, simulated %.3f: "+
						"want at most %g between them",
						goodput, simulated[scenario.Goodput], agreeWithin)
				}
				if bad > most {
					return fmt.Sprintf("%.4f of the attempts went into the failing worker, "+
						"want at most %g", bad, most)
				}
				return ""
			})
		})
	}
}

// scaled returns a scenario of docs/scenarios, with its duration and the times of its events
// divided by divisor. The speeds of workers and network are unchanged.
func scaled(t *testing.T, name string, divisor time.Duration) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(filepath.Join("../../../docs/scenarios", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Service != scenario.Exponential || s.Jitter != 0 || s.Size.Kind != scenario.Unit ||
		len(s.Workers) != 12 {
		t.Fatalf("%s: the real servers know exponential service, no jitter, batches of cost 1 "+
			"and twelve workers", name)
	}
	s.Duration /= divisor
	s.Warmup /= divisor
	for i := range s.Events {
		s.Events[i].At /= divisor
		s.Events[i].For /= divisor
	}
	return s
}

// simulate returns the median figures of several simulations. The parameter reports is set if the
// workers report their load.
func simulate(t *testing.T, s *scenario.Scenario, algorithm string, reports bool) scenario.Figures {
	t.Helper()
	spec, err := flowsim.Find(algorithm, "")
	if err != nil {
		t.Fatal(err)
	}
	spec.Reports = reports
	var runs []scenario.Figures
	for seed := range uint64(agreeSeeds) {
		f, err := flowsim.Run(s, spec, flowsim.Options{Seed: seed + 1})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, f)
	}
	return scenario.Median(runs)
}

// runTestbed runs the real engine with real servers for the duration of the scenario.
func runTestbed(t *testing.T, s *scenario.Scenario, algorithm string) *testbed {
	t.Helper()
	w := newTestbed(t, s, 3)
	nominal := 0.0
	var urls []string
	for i := range w.workers {
		urls = append(urls, fmt.Sprintf("%q", w.workers[i].url))
		nominal += s.Workers[i].Rate
	}
	config := write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  agree:
    source: { arrivals: { count: 1000000000, rate: %g, seed: 7 } }
    sink: { http: { endpoints: [%s], body: raw } }
    batch: { linger: 0s }
    flow: { window: %s }
`, nominal*s.Load.Poisson, strings.Join(urls, ", "), algorithm))
	c, err := engine.Load(config, append(all.Components(), arrivals)...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	w.start = time.Now()
	go func() { ended <- e.Run(ctx) }()
	over := errors.New("the scenario is over")
	at(t, w.start.Add(s.Duration))
	cancel(over)
	if err := <-ended; !errors.Is(err, over) {
		t.Fatal(err)
	}
	return w
}
