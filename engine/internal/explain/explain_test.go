package explain_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

var states = []window.State{window.Unknown, window.Normal, window.Slow, window.Busy, window.Probing,
	window.Open, window.Throttled}

// TestEveryWordIsExplained checks that every state of a worker, every gate (a limit that holds a
// worker back) and every algorithm has a description, and that docs/operating.md explains every
// gate.
func TestEveryWordIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	algorithms := []window.Algorithm{
		nil, window.Linear{}, window.Linear{Threshold: time.Second, Step: window.PerAck},
		window.AIMD{}, window.Queue{}, window.Credit{},
		window.Rate{}, window.Fixed{Size: 4},
	}
	for _, gate := range explain.Gates {
		if !bytes.Contains(page, []byte("| `"+gate+"` |")) {
			t.Errorf("docs/operating.md does not explain the gate %s", gate)
		}
		for _, state := range states {
			for _, a := range algorithms {
				r := explain.Route{Name: "p/r", Window: a, Replay: 32 << 20}
				w := explain.Worker{Worker: status.Worker{Name: "a", State: state.String(),
					Gate: gate, Window: 4, InFlight: 4}}
				r.Workers = []explain.Worker{w}
				said := append(r.Changes(&w), w.StateWords(), r.GateWords(&w), r.HeldWords())
				for _, text := range said {
					if text == "" || strings.Contains(text, "unknown") ||
						strings.Contains(text, "%!") {
						t.Errorf("state %s, gate %s, %T: %q", state, gate, a, text)
					}
				}
			}
		}
	}
}

// TestGatesAreTheMachines checks that every gate of the machine has its own explanation.
func TestGatesAreTheMachines(t *testing.T) {
	r := &explain.Route{}
	seen := map[string]string{}
	for _, g := range control.Gates() {
		words := r.GateWords(&explain.Worker{Worker: status.Worker{Gate: g, State: "NORMAL"}})
		if other, ok := seen[words]; ok || strings.Contains(words, "unknown gate") {
			t.Errorf("gate %q is explained by %q, as %q is", g, words, other)
		}
		seen[words] = g
	}
}

// sampleTrace returns a trace of two workers. Worker a delivers everything. Worker b fails from 2 s
// on and is removed at 4 s.
func sampleTrace(t *testing.T) []byte {
	t.Helper()
	c := control.Config{Seed: 1, Window: window.Linear{Max: 4}, Replay: 1 << 20}
	m, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	w, err := trace.NewWriter(&text, c,
		trace.About{Route: "p/main", Started: time.Unix(1_700_000_000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	var out []control.Command
	step := func(e control.Event) {
		do := m.Step(e, nil)
		w.Event(&e, do)
		out = append(out, do...)
	}
	step(control.Event{Kind: control.LaneUp})
	step(control.Event{Kind: control.LaneUp, Lane: 1})
	seq := uint64(0)
	for now := time.Duration(0); now < 5*time.Second; now += 10 * time.Millisecond {
		if now == 4*time.Second {
			step(control.Event{Now: now, Kind: control.LaneDown, Lane: 1})
		}
		flying := out
		out = nil
		for _, d := range flying {
			if d.Kind == control.Start {
				e := control.Event{Now: now, Kind: control.Answer, ID: d.ID,
					Outcome: control.Delivered}
				if d.Lane == 1 && now >= 2*time.Second {
					e.Outcome = control.Retryable
				}
				step(e)
			}
		}
		if at, ok := m.Wake(); ok && at <= now {
			step(control.Event{Now: now, Kind: control.Tick})
		}
		for m.Room() {
			seq++
			step(control.Event{Now: now, Kind: control.Offer, Seq: seq, Cost: 1, Bytes: 10})
			step(control.Event{Now: now, Kind: control.Saved, Bytes: 10})
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func told(t *testing.T, text []byte, at time.Duration, worker string) *explain.Summary {
	t.Helper()
	p, err := trace.NewPlayer(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := explain.FromTrace(p, at, worker)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoryOfATrace(t *testing.T) {
	text := sampleTrace(t)
	early := told(t, text, time.Second, "1")
	if early.At != time.Second || early.Over || early.One != 1 ||
		early.Workers[1].State == "OPEN" || early.Workers[1].Delivered == 0 {
		t.Errorf("at 1 s: %+v", early.Workers)
	}
	var sum time.Duration
	for _, d := range early.Shares {
		sum += d
	}
	if sum < 980*time.Millisecond || sum > time.Second {
		t.Errorf("the gates' shares of the first second come to %v: %v", sum, early.Shares)
	}
	open := told(t, text, 3500*time.Millisecond, "1")
	w := &open.Workers[open.One]
	if w.Gate != "breaker" || open.Shares["breaker"] < time.Second || w.Failed < 3 ||
		len(open.Changes(w)) == 0 {
		t.Errorf("at 3.5 s worker 1 is %+v, shares %v", w, open.Shares)
	}
	probes := 0
	for i, s := range open.Steps {
		probes += s.Probes
		if i > 0 && s.At < open.Steps[i-1].At {
			t.Errorf("steps go back in time: %+v", open.Steps)
		}
	}
	if last := open.Steps[len(open.Steps)-1]; probes == 0 || len(open.Steps) > explain.MaxSteps ||
		last.State != w.State {
		t.Errorf("steps %+v, worker is %s", open.Steps, w.State)
	}
	gone := told(t, text, explain.Forever, "1")
	if gone.One >= 0 || !gone.Over || len(gone.Names) != 1 {
		t.Errorf("at the end: worker 1 is at %d of %+v, names %v", gone.One, gone.Workers,
			gone.Names)
	}
	all := told(t, text, explain.Forever, "")
	if len(all.Steps) != 0 || len(all.Shares) != 0 || all.Name != "p/main" || all.Replay != 1<<20 {
		t.Errorf("of nobody: %+v", all)
	}
}

func TestHeldWords(t *testing.T) {
	worker := func(gates ...string) (out []explain.Worker) {
		for _, g := range gates {
			out = append(out, explain.Worker{Worker: status.Worker{Gate: g}})
		}
		return out
	}
	for _, c := range []struct {
		workers []explain.Worker
		waiting int64
		want    string
	}{
		{nil, 0, "no worker"},
		{worker("window", "window"), 9, "the windows of 2 of 2"},
		{worker("window", "breaker"), 9, "1 is paused"},
		{worker("breaker", "throttle"), 9, "each of them fails"},
		{worker("none", "window"), 0, "the source: 1 of 2 workers have room"},
		{worker("none"), 3, "nothing for long"},
		{worker("replay", "window"), 3, "the replay bound"},
		{worker("memory", "window"), 3, "memory"},
		{worker("order", "window"), 3, "order"},
		{worker("budget", "window"), 3, "the redelivery budget"},
	} {
		r := explain.Route{Workers: c.workers, Waiting: c.waiting}
		if got := r.HeldWords(); !strings.Contains(got, c.want) {
			t.Errorf("HeldWords of %v = %q, want %q in it", c.workers, got, c.want)
		}
	}
}

// TestWorst checks which worker needs attention first. An idle worker needs none.
func TestWorst(t *testing.T) {
	type workers = []explain.Worker
	at := func(state, gate string, inFlight int, trip float64) explain.Worker {
		return explain.Worker{Worker: status.Worker{State: state, Gate: gate, InFlight: inFlight,
			RoundTrip: trip}}
	}
	for name, c := range map[string]struct {
		workers workers
		want    int
	}{
		"none": {nil, -1},
		"alike": {workers{at("NORMAL", "window", 2, 10),
			at("NORMAL", "window", 2, 19)}, -1},
		"round trip":    {workers{at("NORMAL", "window", 2, 10), at("NORMAL", "window", 2, 20)}, 1},
		"slow":          {workers{at("SLOW", "window", 2, 10), at("NORMAL", "window", 2, 90)}, 0},
		"slow and idle": {workers{at("SLOW", "none", 0, 90)}, -1},
		"idle":          {workers{at("NORMAL", "none", 0, 90), at("NORMAL", "window", 1, 10)}, -1},
		"open and idle": {workers{at("OPEN", "breaker", 0, 90), at("SLOW", "window", 1, 10)}, 0},
		"misconfigured": {workers{at("OPEN", "breaker", 0, 90),
			{Worker: status.Worker{State: "OPEN", Gate: "none", Misconfigured: true}}}, 1},
	} {
		if got := (&explain.Route{Workers: c.workers}).Worst(); got != c.want {
			t.Errorf("%s: worker %d, want %d", name, got, c.want)
		}
	}
}
