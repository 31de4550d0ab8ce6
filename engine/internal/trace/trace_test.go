package trace_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
	"github.com/penstock-io/penstock/engine/internal/lab/peers"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// story drives a machine through every kind of event and outcome and returns its trace.
func story(t *testing.T, c control.Config) []byte {
	t.Helper()
	m, err := control.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, c, trace.About{Route: "a/main",
		Started: time.Unix(1_700_000_000, 5), Arch: "any"})
	if err != nil {
		t.Fatal(err)
	}
	var started []control.Command
	step := func(e control.Event) {
		do := m.Step(e, nil)
		w.Event(&e, do)
		for _, d := range do {
			if d.Kind == control.Start {
				started = append(started, d)
			}
		}
	}
	step(control.Event{Kind: control.LaneUp, Limits: control.Limits{InFlight: 3}})
	step(control.Event{Kind: control.LaneUp, Lane: 1, Limits: control.Limits{Ordered: true}})
	outcomes := []control.Outcome{control.Delivered, control.Throttled, control.Retryable,
		control.Delivered, control.TimedOut,
		control.Misconfigured}
	seq := uint64(0)
	for i := range 300 {
		now := time.Duration(i) * 7 * time.Millisecond
		for m.Room() {
			seq++
			offer := control.Event{Now: now, Kind: control.Offer, Seq: seq,
				Cost: 0.1 + float64(i%3)/3, Bytes: 10}
			if !c.Defer { // items with keys are not deferred
				offer.Keys = []uint32{uint32(seq % 5)}
			}
			step(offer)
		}
		if len(started) > 0 {
			d := started[0]
			started = started[1:]
			step(control.Event{
				Now: now, Kind: control.Answer, ID: d.ID, Outcome: outcomes[i%len(outcomes)],
				After: time.Duration(i%4) * time.Millisecond,
				Report: control.Report{Epoch: uint32(i / 100), QueueLen: i % 3,
					ResumeToken: "<a&b>"},
			})
		}
		step(control.Event{Now: now, Kind: control.Tick})
		step(control.Event{Now: now, Kind: control.Saved, Bytes: 10})
	}
	step(control.Event{Now: 3 * time.Second, Kind: control.LaneDown, Lane: 1})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func configs() map[string]control.Config {
	return map[string]control.Config{
		"zero": {},
		"everything": {
			Seed: 1<<64 - 1, Window: window.Linear{Initial: 3, Threshold: time.Second,
				Step: window.PerAck},
			Dispatch: dispatch.RoundRobin{},
			Timeout:  20 * time.Millisecond,
			Retry:    backoff.Fibonacci(time.Millisecond, time.Second), Replay: 500, Ahead: 9,
			Breaker:   control.Breaker{Failures: 5, Probe: backoff.Fixed(time.Millisecond)},
			Budget:    control.Budget{Share: 0.5, PerSecond: 2, Burst: 3},
			Poison:    control.Poison{Deaths: 2, Failures: -1, Refuse: true},
			Hedge:     control.Hedge{Share: 0.02},
			Limit:     control.Limit{Rate: 1e6, Concurrency: 1000},
			LaneLimit: control.Limit{Bytes: 1e9},
		},
		"defer":  {Defer: true, Retry: backoff.Fixed(2 * time.Second)}, // commands with histories
		"compat": {Retry: otherLibrary("limit(pekko min=1ms max=1s; 9)")},
		"band":   {Dispatch: dispatch.LeastCompletion{Band: 0.2}},
		"fixed":  {Window: window.Fixed{Size: 7}, Dispatch: dispatch.Hash{}, Timeout: -1},
		"queue":  {Window: window.Queue{Initial: 2, Max: 50}, Dispatch: dispatch.LeastCompletion{}},
		"aimd":   {Window: window.AIMD{Initial: 2}, Dispatch: dispatch.RoundRobin{}, Seed: 3},
		"credit": {Window: window.Credit{Max: 60}, Dispatch: dispatch.Hash{}},
		"rate":   {Window: window.Rate{}, Dispatch: dispatch.RoundRobin{}},
	}
}

// otherLibrary is a policy of package compat.
func otherLibrary(spec string) backoff.Policy {
	p, err := compat.Parse(spec)
	if err != nil {
		panic(err)
	}
	return p
}

func TestReplayIsExact(t *testing.T) {
	for name, c := range configs() {
		t.Run(name, func(t *testing.T) {
			text := story(t, c)
			got, err := trace.Replay(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if want := bytes.Count(text, []byte("\n")) - 1; got.Events != want || got.Torn ||
				got.Commands == 0 {
				t.Errorf("Replay = %d events, %d commands, torn %v; want %d events", got.Events,
					got.Commands, got.Torn, want)
			}
			if bytes.Contains(text, []byte(`\u00`)) {
				t.Error("the trace escapes characters that need no escape")
			}
		})
	}
}

func TestReplayOfTornTrace(t *testing.T) {
	text := story(t, control.Config{})
	whole := bytes.Count(text, []byte("\n")) - 1
	got, err := trace.Replay(bytes.NewReader(text[:len(text)-3]))
	if err != nil || !got.Torn || got.Events != whole-1 {
		t.Errorf("Replay = %d events, torn %v, %v; want %d, true", got.Events, got.Torn, err,
			whole-1)
	}
}

func TestReplayFindsWhatDiffers(t *testing.T) {
	text := string(story(t, control.Config{Seed: 4}))
	lines := strings.SplitAfter(text, "\n")
	at := 0
	for i, l := range lines {
		if i > 20 && strings.Contains(l, `"do":"start"`) {
			lines[i] = strings.Replace(l, `"number":1`, `"number":2`, 1)
			at = i + 1
			break
		}
	}
	_, err := trace.Replay(strings.NewReader(strings.Join(lines, "")))
	d, ok := errors.AsType[*trace.DiffersError](err)
	if !ok || d.Line != at {
		t.Errorf("Replay of a trace that was changed in line %d: %v", at, err)
	}
}

func TestReplayRefuses(t *testing.T) {
	header := `{"penstock_trace":1,"seed":1}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "is empty"},
		{"not JSON", "penstock\n", "line 1 is not the header"},
		{"a later version", `{"penstock_trace":2,"seed":1}`, "line 1: is version 2"},
		{"an unknown window", `{"penstock_trace":1,"seed":1,"window":"tidal"}`,
			`line 1: there is no window algorithm "tidal"`},
		{"unknown options", `{"penstock_trace":1,"seed":1,"window":"fixed","window_options":{"Sise":1}}`, "Sise"},
		{"an unknown dispatch", `{"penstock_trace":1,"seed":1,"dispatch":"darts"}`,
			`no dispatch "darts"`},
		{"a wrong policy", `{"penstock_trace":1,"seed":1,"retry":"often"}`, "line 1: retry policy"},
		{"a wrong config", `{"penstock_trace":1,"seed":1,"ahead":-1}`, "line 1"},
		{"an unknown event", header + `{"now":1,"event":"flood"}` + "\n",
			`line 2: "flood" is no event`},
		{"an unknown outcome", header + `{"now":1,"event":"answer","outcome":"fine"}` + "\n",
			`line 2: "fine" is no outcome`},
		{"a wrong time", `{"penstock_trace":1,"seed":1,"started":"noon"}`, "line 1: started"},
		{"an event behind the end", header + `{"now":1,"event":"end","why":"x"}` + "\n" +
			`{"now":1,"event":"tick"}` + "\n", "line 3"},
		{"an unknown member", header + `{"now":1,"event":"tick","x":1}` + "\n" +
			`{"now":1,"event":"tick"}` + "\n", "line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := trace.Replay(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Replay: %v; want %q in it", err, c.want)
			}
		})
	}
}

func TestWriterRefusesWhatCannotBeReplayed(t *testing.T) {
	for name, c := range map[string]control.Config{
		"window":   {Window: peers.Reno{}},
		"dispatch": {Dispatch: peers.PeakEWMA{}},
		"retry":    {Retry: unknownPolicy{}},
	} {
		if _, err := trace.NewWriter(io.Discard, c, trace.About{}); err == nil {
			t.Errorf("%s: a config that cannot be read back was accepted", name)
		}
	}
}

type unknownPolicy struct{ backoff.Policy }

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriterKeepsItsFirstError(t *testing.T) {
	w, err := trace.NewWriter(&full{left: 100_000}, control.Config{}, trace.About{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		w.Event(&control.Event{Kind: control.Tick}, nil)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Close = %v; want the write's error", err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"penstock_trace":1,"seed":1}` + "\n" + `{"now":0,"event":"lane_up"}` + "\n" +
		`{"now":0,"event":"offer","seq":1,"cost":1}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Count(text, []byte("\n")) > 200 {
			return
		}
		got, err := trace.Replay(bytes.NewReader(text))
		if err == nil && got.Events > bytes.Count(text, []byte("\n")) {
			t.Errorf("%d events in %q", got.Events, text)
		}
	})
}
