//penstock:pure

package contention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
)

// Named is a policy in the comparison of docs/which-backoff.md. Most of the policies have a base of
// 10 ms and a maximum of 2 s. (The AWS simulator has a base of 5 ms, and doubles it before the
// first wait.)
type Named struct {
	Name   string
	Policy backoff.Policy
	About  string
}

const (
	base     = 10 * time.Millisecond
	ceiling  = 2 * time.Second
	unending = 1 << 30 // number of attempts of policies that never give up
)

// Names are the policies of the comparison.
var Names = []Named{
	{"none", backoff.Fixed(0), "no wait"},
	{"fixed", backoff.Fixed(100 * time.Millisecond), "100 ms each time"},
	{"random", backoff.Random(200 * time.Millisecond), "random from 0 to 200 ms"},
	{"linear", backoff.Linear(base, base, ceiling), "10 ms longer each time"},
	{"fibonacci", backoff.Fibonacci(base, ceiling), "0, 10, 10, 20, 30, 50 ms, ..."},
	{"exponential", backoff.Exponential(base, 2, ceiling), "doubling, no jitter"},
	{"equal", backoff.Exponential(base, 2, ceiling).Equal(),
		"doubling, random from half of the wait to all of it"},
	{"full", backoff.Exponential(base, 2, ceiling).Full(),
		"doubling, random from 0 to all of the wait"},
	{"decorrelated", decorrelated{}, "random from 5 ms to three times the " +
		"last wait, as in the AWS blog"},
	{"polly", compat.Polly{Type: compat.PollyExponential, Delay: base, Max: ceiling, Jitter: true,
		MaxRetries: unending},
		"Polly v8, exponential with jitter"},
	{"cenkalti", compat.Cenkalti{Initial: base, Max: ceiling, Multiplier: 1.5, Randomization: .5},
		"cenkalti/backoff: times 1.5, plus or minus 50 %"},
	{"hadoop", compat.Cenkalti{Initial: base, Max: ceiling, Multiplier: 2, Randomization: .5},
		"Hadoop's width: doubling, plus or minus 50 %"},
	{"pekko", compat.Pekko{Min: base, Max: ceiling, RandomFactor: .2},
		"Pekko: doubling, plus up to 20 %"},
	{"jpillora", compat.Jpillora{Min: base, Max: ceiling, Factor: 2, Jitter: true},
		"jpillora/backoff with jitter"},
	{"slotted", backoff.Slotted(base, 10, unending), "802.3's backoff with a slot of 10 ms"},
	{"full_latency", backoff.Exponential(2*Latency, 2, ceiling).Full(),
		"full jitter; the mean of the first wait is the latency of an attempt, 40 ms"},
	{"recommended", backoff.Recommended(Latency, ceiling),
		"full jitter over a square of the latency: backoff.Recommended"},
}

// Resolve returns a policy of the comparison by its name. Any other text must be a policy in the
// syntax of compat.Parse.
func Resolve(text string) (backoff.Policy, error) {
	if i := slices.IndexFunc(Names, func(n Named) bool { return n.Name == text }); i >= 0 {
		return Names[i].Policy, nil
	}
	p, err := compat.Parse(text)
	if err != nil && !strings.ContainsAny(text, " =(") {
		var names []string
		for _, n := range Names {
			names = append(names, n.Name)
		}
		return nil, fmt.Errorf("policy %q: want one of %s, or a spec such as %q", text,
			strings.Join(names, ", "),
			"exponential base=10ms max=2s jitter=full")
	}
	return p, err
}

// decorrelated is the policy min(cap, U(base, 3 * last)) of the AWS blog, with base 5 ms. last is
// the previous wait, and U(a, b) is a random number from a to b. If the drawn number is above the
// cap, the wait is the cap. In a long sequence, this happens to about 27 % of the waits. The policy
// backoff.Decorrelated limits b by the cap instead, so that few waits equal the cap.
type decorrelated struct{}

// Next implements backoff.Policy.
func (decorrelated) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	const least = base / 2
	last := least
	if s.N > 0 {
		last = s.Prev
	}
	u := float64(src.Uint64()>>11) / (1 << 53)
	d := min(least+time.Duration(u*float64(3*last-least)), ceiling)
	return d, s.After(d), true
}
