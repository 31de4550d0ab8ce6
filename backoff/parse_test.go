package backoff_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// specs are texts that String returns unchanged after Parse.
var specs = []string{
	"fixed delay=1s",
	"fixed delay=1s jitter=proportional width=0.1",
	"random max=1s",
	"linear base=1s increment=500ms max=30s",
	"linear base=1s increment=500ms jitter=equal attempts=4",
	"exponential base=250ms factor=2 max=30s jitter=full",
	"exponential base=250ms factor=1.5 jitter=additive width=0.2",
	"exponential base=250ms factor=2 max=30s attempts=10",
	"polynomial base=40ms degree=2.5 max=2s jitter=full",
	"fibonacci unit=10ms max=1m0s",
	"table delays=15s,15s,30s,3m0s",
	"pattern points=0:1s,5:5s",
	"slotted slot=51.2µs max_exponent=10 attempts=16",
	"slotted slot=51.2µs max_exponent=10 attempts=0",
	"decorrelated base=1s max=30s",
	"decorrelated_v2 base=1s",
	"recommended latency=40ms max=2s",
	"recommended latency=40ms max=2s jitter=none",
	"recommended latency=40ms max=none jitter=equal",
	"fixed delay=1s attempts=4294967295", // Limit with the largest int
	"slotted slot=1ms max_exponent=4 attempts=4294967295",
	"then(fixed delay=1s; 4294967295; random max=1s)",
	"first_now(fixed delay=1s)",
	"then(table delays=1s,2s; 2; fixed delay=1h0m0s)",
	"max(fixed delay=1s; random max=3s)",
	"sum(exponential base=1s factor=2 max=1m0s; random max=500ms)",
	"limit(sum(fixed delay=1s; random max=500ms); 5)",
	"limit(slotted slot=1ms max_exponent=4 attempts=16; 5)",
	"first_now(then(fixed delay=1s; 3; max(fixed delay=2s; random max=3s)))",
}

func TestParseRoundTrip(t *testing.T) {
	for _, spec := range specs {
		p, err := backoff.Parse(spec)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := fmt.Sprint(p); got != spec {
			t.Errorf("Parse(%q) = %q", spec, got)
		}
	}
}

func TestParseForms(t *testing.T) {
	for spec, want := range map[string]string{
		" exponential   base=1s\tjitter=full ": "exponential base=1s factor=2 jitter=full",
		"polynomial base=1s":                   "polynomial base=1s degree=2",
		"slotted slot=51.2us":                  "slotted slot=51.2µs max_exponent=10 attempts=16",
		"recommended":                          "recommended latency=100ms max=30s",
		"recommended jitter=full":              "recommended latency=100ms max=30s",
		"exponential jitter=none base=1s":      "exponential base=1s factor=2",
		"limit(fixed delay=1s; 3)":             "fixed delay=1s attempts=3",
		"limit(fixed delay=1s attempts=9; 3)":  "fixed delay=1s attempts=3",
		"sum( fixed delay=1s ;random max=1s )": "sum(fixed delay=1s; random max=1s)",
		"pattern points=5:5s,0:1s":             "pattern points=0:1s,5:5s",
	} {
		p, err := backoff.Parse(spec)
		if err != nil || fmt.Sprint(p) != want {
			t.Errorf("Parse(%q) = %v, %v; want %q", spec, p, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"":                   "no policy: want one of",
		"linear":             "base is missing",
		"exponental base=1s": `unknown policy "exponental": want one of`,
		"exponential base=1s cap=3s": `unknown key "cap": exponential has base, ` +
			`factor, max, jitter, width, attempts`,
		"exponential base=1s base=2s":                "base is given twice",
		"exponential base":                           `"base": want key=value`,
		"exponential base=-1s":                       "base -1s is negative",
		"exponential base=1s max=-1s":                "max -1s is negative",
		"exponential base=9999999999h":               `base "9999999999h": want a duration`,
		"exponential base=1":                         `base "1": want a duration`,
		"exponential base=10s max=1s":                "max 1s is below base 10s",
		"exponential base=10s max=0s":                "max is 0: no cap is max=none",
		"exponential base=1s factor=0.5":             "factor 0.5: want 1 or more",
		"exponential base=1s factor=NaN":             "factor NaN",
		"exponential base=1s factor=Inf":             "factor +Inf",
		"exponential base=1s factor=x":               `factor "x": want a number`,
		"exponential base=1s jitter=some":            `jitter "some": want none, full,`,
		"exponential base=1s jitter=proportional":    "width is missing",
		"exponential base=1s jitter=full width=1":    "width is for jitter=proportional",
		"fixed delay=1s jitter=proportional width=2": "width 2 of proportional jitter: want 0 to 1",
		"fixed delay=1s jitter=additive width=-1":    "width -1 of additive jitter",
		"fixed delay=1s attempts=0":                  `attempts "0": want a whole number from 1`,
		"fixed delay=1s attempts=1.5":                `attempts "1.5"`,
		"fixed delay=1s attempts=99999999999":        `attempts "99999999999"`,
		"fixed delay=1s max=1s":                      `unknown key "max": fixed has delay`,
		"random max=1s jitter=full":                  `unknown key "jitter"`,
		"linear base=1s increment=-1s":               "increment -1s is negative",
		"polynomial base=1s degree=-1":               "degree -1: want 0 or more",
		"fibonacci unit=1m max=1s":                   "max 1s is below unit 1m0s",
		"table":                                      "delays is missing",
		"table delays=1s,,2s":                        `delays: number 2, ""`,
		"table delays=1s,-2s":                        "delays: number 2, -2s is negative",
		"pattern points=1s":                          `points: "1s": want step:delay`,
		"pattern points=-1:1s":                       `points: "-1:1s": want step:delay`,
		"pattern points=1:1s,1:2s":                   "points: step 1 is given twice",
		"slotted slot=1ms max_exponent=64":           "max_exponent 64: want 63 or less",
		"slotted slot=1ms attempts=-1":               `attempts "-1"`,
		"decorrelated base=2s max=1s":                "max 1s is below base 2s",
		"recommended latency=40s":                    "max 30s is below latency 40s",
		"first_now(fixed delay=1s":                   "first_now( has no ) at its end",
		"first_now(fixed delay=1s; fixed delay=1s)": "first_now has 2 parts between semicolons, " +
			"want 1",
		"then(fixed delay=1s; x; fixed delay=2s)":  `then: count "x"`,
		"then(fixed delay=1s; 2; fixed delay=-2s)": "then: delay -2s is negative",
		"both(fixed delay=1s)":                     `unknown policy "both"`,
		"sum()":                                    "sum: no policy: want one of",
		"limit(fixed delay=1s; 0)":                 "attempts 0: want 1 or more",
		"sum(fixed delay=1s))":                     "sum: a ) without its (",
		strings.Repeat("first_now(", 40) + "x" + strings.Repeat(")", 40): "nested more than 16 levels deep",
	} {
		_, err := backoff.Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "backoff ") {
			t.Errorf("Parse(%q): %v; want %q", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range specs {
		f.Add(spec)
	}
	f.Add("exponential base=1ns factor=1e300 max=2562047h47m16.854775807s")
	f.Fuzz(func(t *testing.T, spec string) {
		p, err := backoff.Parse(spec)
		if err != nil {
			return
		}
		text := fmt.Sprint(p)
		again, err := backoff.Parse(text)
		if err != nil || fmt.Sprint(again) != text {
			t.Fatalf("Parse(%q).String() = %q, which reads as %v, %v", spec, text, again, err)
		}
		for _, n := range []uint32{0, 1, 2, 17, 63, 64, 1000, math.MaxUint32} {
			a, _, okA := p.Next(backoff.State{N: n, Prev: time.Second}, seeded(7))
			b, _, okB := again.Next(backoff.State{N: n, Prev: time.Second}, seeded(7))
			if a != b || okA != okB || a < 0 {
				t.Fatalf("%q at %d: %v, %v, and after a round trip %v, %v", spec, n, a, okA, b, okB)
			}
		}
	})
}
