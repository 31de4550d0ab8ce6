package flow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/internal/vectors"
)

// vectorFile is one file of golden vectors. The README next to them describes the format.
type vectorFile struct {
	Form  int
	Cases []vectorCase
}

type vectorCase struct {
	Name, Policy, Kind string
	Params             json.RawMessage
	Events             json.RawMessage
}

// TestVectors checks every file in the folder flow of the golden vectors.
func TestVectors(t *testing.T) {
	root := vectors.Dir(t)
	files, err := filepath.Glob(filepath.Join(root, "flow", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no *.json in %s: %v", filepath.Join(root, "flow"), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var f vectorFile
		if err := json.Unmarshal(data, &f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if f.Form != 1 || len(f.Cases) == 0 {
			t.Fatalf("%s: form %d with %d cases, want form 1 with some", name, f.Form, len(f.Cases))
		}
		for _, c := range f.Cases {
			t.Run(filepath.Base(name)+"/"+c.Name, func(t *testing.T) { runVector(t, c) })
		}
	}
}

func runVector(t *testing.T, c vectorCase) {
	if c.Kind != "trace" {
		t.Fatalf("kind %q is not known for flow", c.Kind)
	}
	switch c.Policy {
	case "flow.ledger":
		ledgerTrace(t, c)
	case "flow.linear":
		linearTrace(t, c)
	default:
		t.Fatalf("policy %q is not known", c.Policy)
	}
}

// readVector decodes the events of c, and fails the test if there are none.
func readVector[E any](t *testing.T, c vectorCase) (events []E) {
	t.Helper()
	if err := json.Unmarshal(c.Events, &events); err != nil || len(events) == 0 {
		t.Fatalf("%d events: %v", len(events), err)
	}
	return events
}

// ledgerTrace settles items 1, 2, 3, ..., which are open.
func ledgerTrace(t *testing.T, c vectorCase) {
	type event struct {
		Settle, Watermark int64
		Above             [][2]int64 // closed ranges
	}
	events := readVector[event](t, c)
	l, err := ledger.New(ledger.Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	item := func(n int64) ledger.Range {
		return ledger.Range{From: ledger.Position{Num: n - 1}, To: ledger.Position{Num: n}}
	}
	for _, e := range events {
		for n := l.Next().Num + 1; n <= e.Settle; n++ {
			if err := l.Open(item(n)); err != nil {
				t.Fatal(err)
			}
		}
		l.Settle(item(e.Settle))
		watermark, ranges := l.Progress()
		above := [][2]int64{}
		for _, r := range ranges {
			above = append(above, [2]int64{r.From.Num + 1, r.To.Num})
		}
		if watermark.Num != e.Watermark ||
			!reflect.DeepEqual(above, append([][2]int64{}, e.Above...)) {
			t.Fatalf("after settle %d: watermark %d above %v, want %d %v", e.Settle, watermark.Num,
				above, e.Watermark, e.Above)
		}
	}
}

// linearTrace feeds the events to one window, which is kept full, as in the article.
func linearTrace(t *testing.T, c vectorCase) {
	var params struct {
		ThresholdNS vectors.Nanos `json:"threshold_ns"`
		Initial     int
		Step        string
	}
	if err := json.Unmarshal(c.Params, &params); err != nil {
		t.Fatal(err)
	}
	type event struct {
		Event       string
		RoundTripNS vectors.Nanos `json:"round_trip_ns"`
		Window      float64
		State       string
	}
	steps := map[string]window.Step{"per_ack": window.PerAck, "per_round": window.PerRound}
	step, ok := steps[params.Step]
	if !ok {
		t.Fatalf("step %q is not known", params.Step)
	}
	linear := window.Linear{Initial: params.Initial, Threshold: time.Duration(params.ThresholdNS),
		Step: step}
	if err := linear.Validate(); err != nil {
		t.Fatal(err)
	}
	w := linear.New()
	now := time.Duration(0)
	for i, e := range readVector[event](t, c) {
		now += time.Duration(e.RoundTripNS)
		switch e.Event {
		case "ack":
			w.OnSample(window.Sample{
				Now: now, RoundTrip: time.Duration(e.RoundTripNS), Cost: 1,
				InFlightAtSend: w.Limit(), Limited: true, Epoch: w.Epoch(),
			})
		case "timeout":
			w.OnTimeout(now, 1)
		case "nack":
			w.OnNack(now, 1)
		default:
			t.Fatalf("event %q is not known", e.Event)
		}
		if w.Limit() != e.Window || e.State != "" && w.State().String() != e.State {
			t.Fatalf("event %d (%s): window %v %v, want %v %v (%s)", i, e.Event, w.Limit(),
				w.State(), e.Window, e.State, w.Reason())
		}
	}
}
