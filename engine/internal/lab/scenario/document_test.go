package scenario_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

func TestFormErrors(t *testing.T) {
	const good = "duration: 10s\nload: saturated\nworkers: [ { rate: 10 } ]\n"
	const link = "duration: 10s\nload: saturated\nlink: { delay: 100ms }\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "test.yaml: is empty"},
		{"no YAML", "a: [", "a bracket does not match"},
		{"two documents", good + "---\n" + good, "a second document starts here"},
		{"no mapping", "- 1", "test.yaml:1:1: scenario takes options as a mapping"},
		{"an unknown key", good + "worker: 3",
			"test.yaml:4:1: scenario has no option \"worker\"\n    3 | workers: [ { rate: " +
				"10 } ]\n    4 | worker: 3\n" +
				"      | ^\n  hint: did you mean \"workers\"?"},
		{"a key twice", good + "load: saturated",
			`test.yaml:4:1: "load" is given twice; the first is in line 2`},
		{"an unknown key of a worker", "duration: 1s\nload: saturated\nworkers:\n  - { rat: 1 }",
			`test.yaml:4:7: scenario.workers[0] has no option "rat"`},
		{"a worker without a rate", "duration: 1s\nload: saturated\nworkers: [ { slots: 1 } ]",
			"test.yaml:3:12: scenario.workers[0].rate: must be more than 0"},
		{"no duration", "load: saturated\nworkers: [ { rate: 10 } ]", "duration is missing"},
		{"no load", "duration: 1s\nworkers: [ { rate: 10 } ]", "load is missing"},
		{"no workers", "duration: 1s\nload: saturated", "needs workers or a link"},
		{"workers and link", link + "workers: [ { rate: 10 } ]", "workers and link"},
		{"a warm-up of everything", good + "warmup: 10s", "no time would be measured"},
		{"a wrong duration", good + "warmup: 10",
			`test.yaml:4:9: scenario.warmup: "10" has no unit`},
		{"a negative duration", good + "warmup: -1s", "is negative"},
		{"a wrong number", "duration: 1s\nload: saturated\nworkers: [ { rate: fast } ]",
			`"fast" is not a number`},
		{"a rate of 0", "duration: 1s\nload: saturated\nworkers: [ { rate: 0 } ]", "more than 0"},
		{"NaN", "duration: 1s\nload: saturated\nworkers: [ { rate: NaN } ]",
			`"NaN" is not a number`},
		{"a wrong service", good + "service: quick",
			`there is no "quick"; want exponential, deterministic or hyper`},
		{"a wrong load", "duration: 1s\nload: heavy\nworkers: [ { rate: 10 } ]",
			`scenario.load: "heavy" is not a load`},
		{"two loads", "duration: 1s\nload: { poisson: 0.5, every: 1s }\nworkers: [ { rate: 10 } ]",
			"can be combined only with burst"},
		{"a burst alone", "duration: 1s\nload: { every: 1s, burst: { at: 0s, batches: " +
			"1 } }\nworkers: [ { rate: 10 } ]",
			"burst needs poisson"},
		{"a share of a link", "duration: 1s\nload: { poisson: 0.5 }\nlink: { delay: 1ms }",
			"a link has no such rate"},
		{"two sizes", good + "size: { constant: 1, lognormal: 1 }", "size is one of"},
		{"a wrong range", good + "size: { uniform: [9, 1] }",
			"two whole numbers, the smaller first"},
		{"more joins than senders", good + "joins: [0s, 1s]", "2 joins for 1 senders"},
		{"a phase", good + "pauses: { every: 1s, for: 10ms, phase: same }", "want random"},
		{"pauses without end", good + "pauses: { every: 1s, for: 1s, phase: random }",
			"a shorter for"},
		{"an event of nothing", good + "events: [ { at: 1s, workers: all } ]", "this has 0"},
		{"an event of two things", good +
			"events: [ { at: 1s, workers: all, hang: true, pause: true } ]", "this has 2"},
		{"an event at no time", good + "events: [ { workers: all, hang: true } ]",
			"test.yaml:4:11: scenario.events[0].at is missing"},
		{"an event without workers", good + "events: [ { at: 1s, hang: true } ]",
			"scenario.events[0].workers is missing"},
		{"an event of no worker", good + "events: [ { at: 1s, workers: [1], hang: true } ]",
			"1 is out of range: 0 to 0"},
		{"a worker twice", good + "events: [ { at: 1s, workers: [0, 0], hang: true } ]",
			"given twice"},
		{"more than all", good + "events: [ { at: 1s, workers: { fastest: 2 }, hang: true } ]",
			"2 is out of range"},
		{"a wrong factor", good + "events: [ { at: 1s, workers: all, rate: xfast } ]",
			`"xfast" is not a rate`},
		{"a long restart", good + "events: [ { at: 1s, for: 1s, workers: all, restart: true } ]",
			"remove for"},
		{"an event of a link", link + "events: [ { at: 1s, workers: all, hang: true } ]",
			"this is a link"},
		{"a slow forwarder", good + "shared: { rate: 1 }\nevents: [ { at: 1s, workers: " +
			"all, rate: x2 } ]", "only forward"},
		{"a link's action", "duration: 1s\nload: saturated\nlink: { delay: 1ms, rate: { limit: " +
			"1, action: wait } }",
			`there is no "wait"; want defer or drop`},
		{"a link without delay", "duration: 1s\nload: saturated\nlink: { jitter: 1 }",
			"link.delay is missing"},
		{"an unknown figure", good + "expect:\n  linear: { speed: \"> 1\" }",
			`test.yaml:5:20: scenario.expect.linear.speed: there is no figure "speed"`},
		{"a wrong bound", good + "expect: { linear: { goodput: 0.9 } }",
			`scenario.expect.linear.goodput: the bound is "0.9"`},
		{"a number out of bounds", good + "senders: 1001",
			`test.yaml:4:10: scenario.senders: "1001" is more than 1000`},
		{"an event of no workers", good + "events: [ { at: 1s, workers: [], hang: true } ]",
			"workers is empty"},
		{"a thing that does not happen", good + "events: [ { at: 1s, workers: all, hang: false } ]",
			"write true, or leave the key out"},
		{"a late event", good + "events: [ { at: 11s, workers: all, hang: true } ]",
			"11s is after the end at 10s"},
		{"size and cost", good + "size: 2\ncost: 2", "the same figure"},
		{"several faults", good + "senders: 0\nservice: quick", `less than 1`},
		{"a figure that there is not", good + "expect: { linear: { finish_s: \"<= 1\" } }",
			"the load never ends"},
		{"no event to recover from", good + "worst: { linear: { recover_s: \"<= 1\" } }",
			"no event to recover from"},
		{"nobody fails", good + "expect: { linear: { bad_share: \"<= 1\" } }",
			"no worker ever fails"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := scenario.Parse("test.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse: %v\nwant %q in it", err, c.want)
			}
		})
	}
}

// TestForm reads all features of the format.
func TestForm(t *testing.T) {
	s, err := scenario.Parse("dir/all.yaml", []byte(`
duration: &long 20s
warmup: 5s
slots: 3
workers: [ { count: 2, rate: 10 }, { rate: 30, slots: 1 } ]
service: hyper
network: { rtt: 10ms, jitter: 2ms }
load: { poisson: 0.5, burst: { at: 1s, batches: 7 } }
size: { uniform: [1, 100] }
senders: 2
joins: [0s, 5s]
timeout: 2s
events:
  - { at: 0s, for: *long, workers: { fastest: 2 }, rate: x0.25 }
  - { at: 1s, workers: [2, 0], rate: 40 }
  - { at: 2s, workers: all, fail: { after: 6ms } }
  - { at: 3s, workers: [1], credit: 0 }
  - { at: 4s, workers: [1], throttle: { rate: 5, retry_after: 1s } }
expect:
  linear: { goodput: ">= 0.9", bloat: "<= 4" }
worst:
  queue: { jain: "> 0.5" }
  linear: { goodput: "> 0.8" }
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &scenario.Scenario{
		Name: "all", Duration: 20 * time.Second, Warmup: 5 * time.Second, Service: scenario.Hyper,
		Senders: 2,
		Load: scenario.Workload{Poisson: 0.5,
			Burst: scenario.Burst{At: time.Second, Batches: 7}},
		Joins: []time.Duration{0, 5 * time.Second},
		Workers: []scenario.Worker{{Rate: 10, Slots: 3}, {Rate: 10, Slots: 3},
			{Rate: 30, Slots: 1}},
		RTT: 10 * time.Millisecond, Jitter: 2 * time.Millisecond, Timeout: 2 * time.Second,
		Size: scenario.Size{Kind: scenario.Uniform, A: 1, B: 100},
		Events: []scenario.Event{
			{Kind: scenario.Rate, For: 20 * time.Second, Workers: []int{2, 0}, Factor: 0.25,
				Share: 1},
			{Kind: scenario.Rate, At: time.Second, Workers: []int{2, 0}, Limit: 40, Share: 1},
			{Kind: scenario.Fail, At: 2 * time.Second, Workers: []int{0, 1, 2},
				After: 6 * time.Millisecond, Share: 1},
			{Kind: scenario.Credit, At: 3 * time.Second, Workers: []int{1}, Share: 1},
			{Kind: scenario.Throttle, At: 4 * time.Second, Workers: []int{1}, Limit: 5,
				Hint: time.Second, Share: 1},
		},
		Expect: []scenario.Expectation{
			{Algorithm: "linear", Where: config.Place{File: "dir/all.yaml", Line: 20, Column: 3},
				Bounds: []scenario.Bound{
					{Field: scenario.Goodput, Op: ">=", Value: 0.9, Text: ">= 0.9"},
					{Field: scenario.Bloat, Op: "<=", Value: 4, Text: "<= 4"},
					{Field: scenario.Goodput, Op: ">", Value: 0.8, Text: "> 0.8", Worst: true},
				}},
			{Algorithm: "queue", Where: config.Place{File: "dir/all.yaml", Line: 22, Column: 3},
				Bounds: []scenario.Bound{
					{Field: scenario.Jain, Op: ">", Value: 0.5, Text: "> 0.5", Worst: true},
				}},
		},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("read\n%+v, want\n%+v", s, want)
	}
}

// TestFormOfALink reads a scenario with a link, a receiver with a delay that depends on its load.
// The keys load and cost, which can be mappings, are single values here.
func TestFormOfALink(t *testing.T) {
	s, err := scenario.Parse("l.yaml", []byte(
		"duration: 1s\nload: saturated\ncost: 5\ntimeout: auto\n"+
			"link: { delay: 1ms, jitter: 0.5, concurrency: { limit: 3, action: drop }, "+
			"rate: { knee_start: 2, knee_exp: 1.5, scale: 0.1 },\n"+
			"  fail_first: { after: 2, failures: 5 } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &scenario.Link{
		Delay: time.Millisecond, Jitter: 0.5, Concurrency: scenario.Knee{Limit: 3, Action: "drop"},
		Rate:      scenario.Knee{Start: 2, Exp: 1.5, Scale: 0.1},
		FailFirst: scenario.FailFirst{After: 2, Failures: 5},
	}
	five := scenario.Size{Kind: scenario.Constant, A: 5}
	if !reflect.DeepEqual(s.Link, want) || !s.Load.Saturated || s.Size != five || s.Timeout != 0 ||
		len(s.Workers) != 1 {
		t.Errorf("read %+v with the link %+v, want the link %+v", s, s.Link, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("duration: 10s\nload: saturated\nworkers: [ { rate: 10 } ]\n"))
	f.Add([]byte("duration: 1s\nload: { every: 1ms, batches: 3 }\n" +
		"link: { delay: 1ms, rate: { limit: 1, action: drop } }\nexpect: { linear: { goodput: " +
		"\">= 1\" } }"))
	f.Add([]byte("duration: 1s\nload: { poisson: 1 }\nworkers: [ { count: 2, rate: 3 } ]\n" +
		"events: [ { at: 0s, workers: { fastest: 1 }, rate: x2 } ]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenario.Parse("f.yaml", text)
		if err == nil && (s.Duration <= 0 || len(s.Workers) == 0 || s.Senders < 1) {
			t.Errorf("accepted %q as %+v", text, s)
		}
	})
}
