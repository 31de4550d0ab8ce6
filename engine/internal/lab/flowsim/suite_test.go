package flowsim_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow/control"
)

// scenarios loads the suite.
func scenarios(t *testing.T) []*scenario.Scenario {
	t.Helper()
	dir := os.Getenv("PENSTOCK_SCENARIOS")
	if dir == "" {
		t.Skip("PENSTOCK_SCENARIOS names no folder of scenarios")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", dir, err)
	}
	var all []*scenario.Scenario
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// TestScenarios checks that every file of the suite loads, and that the first seconds of each run
// give plausible figures.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios(t) {
		t.Run(s.Name, func(t *testing.T) {
			s.Duration, s.Warmup = min(s.Duration, 4*time.Second), 0
			for _, algorithm := range []string{"linear", "vector_arc+round_robin"} {
				f := run(t, s, algorithm, 1)
				for i, v := range f {
					if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
						t.Errorf("%s: %s is %g", algorithm, scenario.Figure(i), v)
					}
				}
				if f[scenario.Goodput] <= 0 || f[scenario.Goodput] > 1.25 ||
					f[scenario.RTTMean] <= 0 || f[scenario.AttemptsPerBatch] < 1 ||
					f[scenario.Overshoot] <= 0 {
					b, _ := f.MarshalJSON()
					t.Errorf("%s: %s", algorithm, b)
				}
			}
		})
	}
}

// TestSameSeedSameBytes checks that the result of a run depends only on its seed, even if other
// runs are concurrent.
func TestSameSeedSameBytes(t *testing.T) {
	s := parse(t, "duration: 20s\nload: { poisson: 0.7 }\nservice: hyper\nsize: { lognormal: "+
		"1 }\nsenders: 2\n"+
		"pauses: { every: 3s, for: 100ms, phase: random }\n"+
		"events: [ { at: 5s, for: 5s, workers: [0], fail: { after: 1ms, share: 0.5 } } ]\n"+twelve)
	plans := []flowsim.Plan{{Scenario: s,
		Specs: []*flowsim.Spec{find(t, "linear"), find(t, "netflix_vegas+peak_ewma")}}}
	all := func() (out [][]byte) {
		err := flowsim.RunAll(t.Context(), plans, 7, 3, func(sum *flowsim.Summary) error {
			for _, f := range sum.Runs {
				b, err := f.MarshalJSON()
				if err != nil {
					return err
				}
				out = append(out, b)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first, second := all(), all()
	seen := map[string]bool{}
	for i := range first {
		if !bytes.Equal(first[i], second[i]) {
			t.Errorf("run %d differs:\n%s\n%s", i, first[i], second[i])
		}
		seen[string(first[i])] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d different results of 6 runs with different seeds and algorithms", len(seen))
	}
}

// TestTraceReplays checks that replaying the trace of a run gives the same commands.
func TestTraceReplays(t *testing.T) {
	s := parse(t, "duration: 10s\nload: { poisson: 0.8 }\nevents: [ { at: 2s, for: 3s, workers: "+
		"[0, 4], hang: true } ]\n"+twelve)
	spec := find(t, "linear+round_robin")
	var text bytes.Buffer
	w, err := trace.NewWriter(&text, spec.Config(s, 3), trace.About{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := flowsim.Run(s, spec, flowsim.Options{Seed: 3,
		Trace: func(e *control.Event, do []control.Command) { w.Event(e, do) }})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	done, err := trace.Replay(&text)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "settled in the replay", float64(done.Status.Settled), f[scenario.RateMean]*10, 1e-9)
}

func TestBoundsAreJudged(t *testing.T) {
	s := parse(t, "duration: 10s\nload: saturated\nservice: deterministic\n"+twelve+`
expect:
  linear: { goodput: ">= 0.1", bloat: "<= 0.1" }
  linear+round_robin: { goodput: "> 2" }
worst:
  linear: { rate_mean: "<= 1" }
`)
	p, err := flowsim.NewPlan(s, nil, "")
	if err != nil || len(p.Specs) != 2 || p.Specs[1].Dispatch != "round_robin" {
		t.Fatalf("NewPlan = %+v, %v; want the two algorithms that have bounds", p, err)
	}
	var got []string
	err = flowsim.RunAll(t.Context(), []flowsim.Plan{p}, 1, 3, func(sum *flowsim.Summary) error {
		for _, v := range sum.Verdicts {
			word := "missed"
			if v.OK {
				word = "ok"
			}
			got = append(got, sum.Spec.Name+" "+v.Field.String()+" "+word)
			if worst := v.Field == scenario.RateMean; v.Worst != worst ||
				worst && v.Got != max(sum.Runs[0][v.Field],
					sum.Runs[1][v.Field], sum.Runs[2][v.Field]) {
				t.Errorf("%s: worst %v, %g", v.Field, v.Worst, v.Got)
			}
		}
		if sum.OK {
			t.Errorf("%s is ok", sum.Spec.Name)
		}
		return nil
	})
	want := "linear goodput ok, linear bloat missed, linear rate_mean missed, linear+round_robin " +
		"goodput missed"
	if err != nil || strings.Join(got, ", ") != want {
		t.Errorf("verdicts %q, %v\nwant %q", strings.Join(got, ", "), err, want)
	}
	for _, c := range []struct {
		algorithm, dispatch string
		bounds              int
	}{
		{"linear", "round_robin", 1}, {"linear+round_robin", "", 1},
		{"linear+least_completion", "", 3},
	} {
		other, err := flowsim.NewPlan(s, []string{c.algorithm}, c.dispatch)
		if err != nil {
			t.Fatal(err)
		}
		if err := flowsim.RunAll(t.Context(), []flowsim.Plan{other}, 1, 1,
			func(sum *flowsim.Summary) error {
				if len(sum.Verdicts) != c.bounds {
					t.Errorf("%s with --dispatch %q is judged by %+v; want %d bounds",
						c.algorithm, c.dispatch, sum.Verdicts, c.bounds)
				}
				return nil
			}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunAllEnds(t *testing.T) {
	p := flowsim.Plan{Scenario: parse(t, "duration: 10s\nload: saturated\n"+twelve),
		Specs: []*flowsim.Spec{find(t, "linear")}}
	stop := errors.New("enough")
	if err := flowsim.RunAll(t.Context(), []flowsim.Plan{p, p}, 1, 2,
		func(*flowsim.Summary) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("RunAll = %v, want what done returned", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := flowsim.RunAll(ctx, []flowsim.Plan{p}, 1, 1,
		func(*flowsim.Summary) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("RunAll = %v, want the cause of its context", err)
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"tidal": `there is no algorithm "tidal"; the algorithms are linear, aimd, queue, ` +
			`credit, rate, fixed`,
		"linear+darts":    `there is no dispatch "darts"; the dispatches are least_completion`,
		"fixed:0":         "not a number of batches",
		"fixed:many":      "not a number of batches",
		"linear:slow":     "neither per_ack nor a threshold",
		"reno:1":          "has no options",
		"linear:-5ms":     "neither per_ack nor a threshold",
		"fixed:100000000": "fixed window of 100000000",
	} {
		if _, err := flowsim.Find(name, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Find(%q) = %v; want %q in it", name, err, want)
		}
	}
	if s := find(t, "fixed:10+hash"); s.Window.Name() != "fixed" || s.Policy.Name() != "hash" ||
		s.Title() != "fixed:10+hash" {
		t.Errorf("Find(fixed:10+hash) = %+v", s)
	}
}

// TestLateAcksEndTheGlobalBackoff checks that a sender does not stand still in the global backoff,
// the state in which no worker delivers. If late acks settle all items in flight there, the machine
// must request a probe. The windows are far too wide for the one server behind all workers, so
// every ack arrives after its attempt's timeout.
func TestLateAcksEndTheGlobalBackoff(t *testing.T) {
	const shared = `
name: too-wide
duration: 60s
warmup: 20s
workers:
  - { count: 12, rate: 50 }
service: exponential
network: { rtt: 10ms }
shared: { rate: 200, slots: 1 }
load: saturated
timeout: auto
`
	for seed := range uint64(5) {
		if f := run(t, parse(t, shared), "fixed:32", seed+1); f[scenario.Goodput] < 0.9 {
			t.Errorf("seed %d: goodput is %.3f: the sender stood still", seed+1,
				f[scenario.Goodput])
		}
	}
}
