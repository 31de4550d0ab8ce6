package window

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/vectors"
)

// vectorCase is a case of the test vectors, with the fields that this package uses. The README of
// the vectors describes the format.
type vectorCase struct {
	Name, Policy, Kind string
	Params             struct {
		Threshold vectors.Nanos `json:"threshold_ns"`
		Initial   int
		Step      string
	}
	Events []struct {
		Event     string
		RoundTrip vectors.Nanos `json:"round_trip_ns"`
		Window    float64
		State     string
	}
}

func TestVectors(t *testing.T) {
	root := vectors.Dir(t)
	files, err := filepath.Glob(filepath.Join(root, "flow", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s/flow: %v", root, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Form  int
			Cases []json.RawMessage
		}
		if err := json.Unmarshal(data, &file); err != nil || file.Form != 1 {
			t.Fatalf("%s: form %d: %v", name, file.Form, err)
		}
		for _, raw := range file.Cases {
			var head struct{ Name, Policy string }
			if err := json.Unmarshal(raw, &head); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			t.Run(head.Name, func(t *testing.T) {
				switch head.Policy {
				case "flow.linear":
					var c vectorCase
					if err := json.Unmarshal(raw, &c); err != nil {
						t.Fatal(err)
					}
					linearTrace(t, c)
				case "flow.ledger": // tested by package ledger
				default:
					t.Fatalf("policy %q is not known here", head.Policy)
				}
			})
		}
	}
}

func linearTrace(t *testing.T, c vectorCase) {
	steps := map[string]Step{"per_ack": PerAck, "per_round": PerRound}
	step, ok := steps[c.Params.Step]
	if !ok || c.Kind != "trace" {
		t.Fatalf("step %q, kind %q", c.Params.Step, c.Kind)
	}
	l := Linear{Initial: c.Params.Initial, Threshold: c.Params.Threshold.Duration(), Step: step}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	w := l.New()
	for i, e := range c.Events {
		now := time.Duration(i) * time.Second
		switch e.Event {
		case "ack":
			w.OnSample(Sample{Now: now, RoundTrip: e.RoundTrip.Duration(), Cost: 1,
				InFlightAtSend: w.Limit(), Limited: true, Epoch: w.Epoch()})
		case "timeout":
			w.OnTimeout(now, 1)
		case "nack":
			w.OnNack(now, 1)
		default:
			t.Fatalf("event %d is %q", i, e.Event)
		}
		if w.Limit() != e.Window {
			t.Fatalf("after event %d (%s %v) the window is %v, want %v: %s", i, e.Event,
				e.RoundTrip, w.Limit(), e.Window, w.Reason())
		}
		if e.State != "" && w.State().String() != e.State {
			t.Fatalf("after event %d (%s %v) the state is %v, want %s", i, e.Event, e.RoundTrip,
				w.State(), e.State)
		}
	}
}
