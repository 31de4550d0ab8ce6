package flow_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/sim/flow"
)

// parse reads a scenario that a test holds.
func parse(t testing.TB, text string) *flow.Scenario {
	t.Helper()
	s, err := flow.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t testing.TB, name string) *flow.Spec {
	t.Helper()
	spec, err := flow.Find(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func run(t testing.TB, s *flow.Scenario, algorithm string, seed uint64) flow.Figures {
	t.Helper()
	f, err := flow.Run(s, find(t, algorithm), flow.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// near fails where got is further than share from want.
func near(t testing.TB, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want) {
		t.Errorf("%s is %g, want %g within %g %%", what, got, want, 100*share)
	}
}

// one is a scenario of one worker without timeouts: what queueing theory knows.
func one(duration, worker, service, network, load string) string {
	return fmt.Sprintf("duration: %s\nwarmup: 10s\nworkers: [ %s ]\nservice: %s\nnetwork: %s\nload: %s\ntimeout: 1h\n",
		duration, worker, service, network, load)
}
