package flow_test

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/sim/flow"
)

func TestFormErrors(t *testing.T) {
	const good = "duration: 10s\nload: saturated\nworkers: [ { rate: 10 } ]\n"
	const link = "duration: 10s\nload: saturated\nlink: { delay: 100ms }\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "test.yaml: is empty"},
		{"no YAML", "a: [", "is not YAML"},
		{"two documents", good + "---\n" + good, "a second document starts here"},
		{"no mapping", "- 1", "test.yaml:1:1: a scenario must be a mapping"},
		{"an unknown key", good + "worker: 3", `test.yaml:4:1: "worker" is no key of a scenario; did you mean "workers"?`},
		{"a key twice", good + "load: saturated", `test.yaml:4:1: "load" is given twice; the first is in line 2`},
		{"an unknown key of a worker", "duration: 1s\nload: saturated\nworkers:\n  - { rat: 1 }",
			`test.yaml:4:7: "rat" is no key of a worker; did you mean "rate"?`},
		{"a worker without a rate", "duration: 1s\nload: saturated\nworkers: [ { slots: 1 } ]", "a worker has no rate"},
		{"no duration", "load: saturated\nworkers: [ { rate: 10 } ]", "duration is missing"},
		{"no load", "duration: 1s\nworkers: [ { rate: 10 } ]", "load is missing"},
		{"no workers", "duration: 1s\nload: saturated", "neither workers nor link"},
		{"workers and link", link + "workers: [ { rate: 10 } ]", "workers and link"},
		{"an aliased value", "duration: &d 10s\nwarmup: *d\nload: saturated\nworkers: [ { rate: 10 } ]", "aliases are not followed"},
		{"a warm-up of everything", good + "warmup: 10s", "nothing would be measured"},
		{"a wrong duration", good + "warmup: 10", `test.yaml:4:9: "10" is not a duration`},
		{"a negative duration", good + "warmup: -1s", "out of range"},
		{"a wrong number", "duration: 1s\nload: saturated\nworkers: [ { rate: fast } ]", `"fast" is not a number`},
		{"a rate of 0", "duration: 1s\nload: saturated\nworkers: [ { rate: 0 } ]", "more than 0"},
		{"NaN", "duration: 1s\nload: saturated\nworkers: [ { rate: NaN } ]", `"NaN" is not a number`},
		{"a wrong service", good + "service: quick", `service is "quick"`},
		{"a wrong load", "duration: 1s\nload: heavy\nworkers: [ { rate: 10 } ]", `load is "heavy"`},
		{"two loads", "duration: 1s\nload: { poisson: 0.5, every: 1s }\nworkers: [ { rate: 10 } ]", "poisson goes with burst only"},
		{"a burst alone", "duration: 1s\nload: { every: 1s, burst: { at: 0s, batches: 1 } }\nworkers: [ { rate: 10 } ]",
			"burst goes with poisson only"},
		{"a share of a link", "duration: 1s\nload: { poisson: 0.5 }\nlink: { delay: 1ms }", "a link has none"},
		{"two sizes", good + "size: { constant: 1, lognormal: 1 }", "size is one of"},
		{"a wrong range", good + "size: { uniform: [9, 1] }", "two whole numbers, the smaller first"},
		{"more joins than senders", good + "joins: [0s, 1s]", "2 joins for 1 senders"},
		{"a phase", good + "pauses: { every: 1s, for: 10ms, phase: same }", "only random is known"},
		{"pauses without end", good + "pauses: { every: 1s, for: 1s, phase: random }", "a shorter for"},
		{"an event of nothing", good + "events: [ { at: 1s, workers: all } ]", "this does 0"},
		{"an event of two things", good + "events: [ { at: 1s, workers: all, hang: true, pause: true } ]", "this does 2"},
		{"an event at no time", good + "events: [ { workers: all, hang: true } ]", "needs at"},
		{"an event without workers", good + "events: [ { at: 1s, hang: true } ]", "needs workers"},
		{"an event of no worker", good + "events: [ { at: 1s, workers: [1], hang: true } ]", "1 is out of range: 0 to 0"},
		{"a worker twice", good + "events: [ { at: 1s, workers: [0, 0], hang: true } ]", "named twice"},
		{"more than all", good + "events: [ { at: 1s, workers: { fastest: 2 }, hang: true } ]", "2 is out of range"},
		{"a wrong factor", good + "events: [ { at: 1s, workers: all, rate: xfast } ]", `rate is "xfast"`},
		{"a long restart", good + "events: [ { at: 1s, for: 1s, workers: all, restart: true } ]", "takes no for"},
		{"an event of a link", link + "events: [ { at: 1s, workers: all, hang: true } ]", "this is a link"},
		{"a slow forwarder", good + "shared: { rate: 1 }\nevents: [ { at: 1s, workers: all, rate: x2 } ]", "only forward"},
		{"a link's action", "duration: 1s\nload: saturated\nlink: { delay: 1ms, rate: { limit: 1, action: wait } }", `action is "wait"`},
		{"a link without delay", "duration: 1s\nload: saturated\nlink: { jitter: 1 }", "link has no delay"},
		{"an unknown figure", good + "expect:\n  linear: { speed: \"> 1\" }", `test.yaml:5:13: "speed" is no key of a figure`},
		{"a wrong bound", good + "expect: { linear: { goodput: 0.9 } }", `the bound on goodput is "0.9"`},
		{"a figure that there is not", good + "expect: { linear: { finish_s: \"<= 1\" } }", "the load never ends"},
		{"no event to recover from", good + "worst: { linear: { recover_s: \"<= 1\" } }", "no event to recover from"},
		{"nobody fails", good + "expect: { linear: { bad_share: \"<= 1\" } }", "no worker ever fails"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := flow.Parse("test.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse: %v\nwant %q in it", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("duration: 10s\nload: saturated\nworkers: [ { rate: 10 } ]\n"))
	f.Add([]byte("duration: 1s\nload: { every: 1ms, batches: 3 }\n" +
		"link: { delay: 1ms, rate: { limit: 1, action: drop } }\nexpect: { linear: { goodput: \">= 1\" } }"))
	f.Add([]byte("duration: 1s\nload: { poisson: 1 }\nworkers: [ { count: 2, rate: 3 } ]\n" +
		"events: [ { at: 0s, workers: { fastest: 1 }, rate: x2 } ]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := flow.Parse("f.yaml", text)
		if err == nil && (s.Duration <= 0 || len(s.Workers) == 0 || s.Senders < 1) {
			t.Errorf("accepted %q as %+v", text, s)
		}
	})
}
