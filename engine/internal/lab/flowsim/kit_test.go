package flowsim_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// parse returns the scenario that is written in text.
func parse(t testing.TB, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t testing.TB, name string) *flowsim.Spec {
	t.Helper()
	spec, err := flowsim.Find(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func run(t testing.TB, s *scenario.Scenario, algorithm string, seed uint64) scenario.Figures {
	t.Helper()
	f, err := flowsim.Run(s, find(t, algorithm), flowsim.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// near fails the test if got differs from want by more than share of want.
func near(t testing.TB, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want) {
		t.Errorf("%s is %g, want %g within %g %%", what, got, want, 100*share)
	}
}

// one returns a scenario of one worker without timeouts, for which queueing theory has closed
// formulas.
func one(duration, worker, service, network, load string) string {
	return fmt.Sprintf("duration: %s\nwarmup: 10s\nworkers: [ %s ]\nservice: %s\nnetwork: "+
		"%s\nload: %s\ntimeout: 1h\n",
		duration, worker, service, network, load)
}
