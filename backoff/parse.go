//penstock:pure

package backoff

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads a policy from text: a name, and keys with values. The keys are those of the engine's
// `retry:`.
//
//	fixed delay=1s
//	random max=1s
//	linear base=1s increment=1s max=30s
//	exponential base=250ms factor=2 max=30s jitter=full
//	polynomial base=40ms degree=2 max=30s jitter=full
//	fibonacci unit=10ms max=1m
//	table delays=15s,15s,30s,3m
//	pattern points=0:1s,5:5s
//	slotted slot=51.2us max_exponent=10 attempts=16
//	decorrelated base=1s max=30s
//	decorrelated_v2 base=1s max=30s
//	recommended latency=100ms max=30s
//
// The defaults are factor=2, degree=2, max_exponent=10 and, for slotted, attempts=16. Without max,
// or with max=none, there is no cap. Exceptions: random requires max, and recommended has the
// defaults latency=100ms and max=30s. jitter is none, full, equal, proportional or additive, the
// last two with a width (width=0.2 is 20 %). random, slotted and the decorrelated policies do not
// accept jitter. attempts=5 ends any policy after 5 attempts, the first call included. Policies are
// combined as in Go:
//
//	first_now(SPEC)    then(SPEC; 3; SPEC)    max(SPEC; SPEC)    sum(SPEC; SPEC)    limit(SPEC; 5)
//
// An error names the part that is wrong: an unknown policy or key, a key given twice, a value that
// is negative, too large or not a number, or a max below the base, unit or latency. If a policy of
// this package is valid, Parse turns the text that its String method returns into the same policy.
//
// The policies of other libraries are in package backoff/compat. The Parse of that package reads
// its policies and those of this package.
func Parse(spec string) (Policy, error) { return ParseWith(spec, nil) }

// ParseWith is like Parse, but also accepts the policies in the map named more. A key of the map is
// the name of a policy, and its value is the function that reads the settings of the policy.
// ParseWith validates the policies that these functions return. Each policy should have a String
// method that returns text which ParseWith can read.
func ParseWith(spec string, more map[string]func(*Settings) Policy) (Policy, error) {
	p, err := parser(more).parse(strings.TrimSpace(spec), 0)
	if err != nil {
		return nil, fmt.Errorf("backoff %q: %w", spec, err)
	}
	return p, nil
}

// maxNesting is the maximum depth of nested policies in a text.
const maxNesting = 16

// parser maps the names of additional policies to the functions that read them. The variable
// readers has the functions for the policies of this package.
type parser map[string]func(*Settings) Policy

func (more parser) parse(spec string, depth int) (Policy, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("policies are nested more than %d levels deep", maxNesting)
	}
	if name, rest, ok := strings.Cut(spec, "("); ok && !strings.ContainsAny(name, " =;") {
		return more.parseCombination(name, rest, depth)
	}
	words := strings.Fields(spec)
	if len(words) == 0 {
		return nil, errors.New("no policy: want one of " + more.names())
	}
	read, ok := readers[words[0]]
	if !ok {
		read, ok = more[words[0]]
	}
	if !ok {
		return nil, fmt.Errorf("unknown policy %q: want one of %s", words[0], more.names())
	}
	k := &Settings{policy: words[0], values: map[string]string{}}
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want key=value", word)
		}
		if _, twice := k.values[key]; twice {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		k.values[key] = value
	}
	p := read(k)
	if attempts, ok := k.Number("attempts", 1); ok {
		p = Limit(p, attempts)
	}
	if err := k.finish(words[1:]); err != nil {
		return nil, err
	}
	return p, Validate(p)
}

// readers maps the name of each policy to a function that creates it from its keys.
var readers = map[string]func(*Settings) Policy{
	"fixed":  func(k *Settings) Policy { return k.jitter(Fixed(k.must("delay"))) },
	"random": func(k *Settings) Policy { return Random(k.must("max")) },
	"linear": func(k *Settings) Policy {
		return k.jitter(Linear(k.must("base"), k.must("increment"), k.cap(0)))
	},
	"exponential": func(k *Settings) Policy {
		return k.jitter(Exponential(k.must("base"), k.Float("factor", 2), k.cap(0)))
	},
	"polynomial": func(k *Settings) Policy {
		return k.jitter(Polynomial(k.must("base"), k.Float("degree", 2), k.cap(0)))
	},
	"fibonacci": func(k *Settings) Policy {
		return k.jitter(Fibonacci(k.must("unit"), k.cap(0)))
	},
	"table":           func(k *Settings) Policy { return k.jitter(Table(k.delays()...)) },
	"pattern":         func(k *Settings) Policy { return k.jitter(Pattern(k.points()...)) },
	"slotted":         readSlotted,
	"decorrelated":    func(k *Settings) Policy { return Decorrelated(k.must("base"), k.cap(0)) },
	"decorrelated_v2": func(k *Settings) Policy { return DecorrelatedV2(k.must("base"), k.cap(0)) },
	"recommended": func(k *Settings) Policy {
		latency, ok := k.Duration("latency")
		if !ok {
			latency = 100 * time.Millisecond
		}
		return k.jitter(Recommended(latency, k.cap(30*time.Second)))
	},
}

func readSlotted(k *Settings) Policy {
	exponent, ok := k.Number("max_exponent", 0)
	if !ok {
		exponent = 10
	}
	attempts, ok := k.Number("attempts", 0)
	if !ok {
		attempts = 16
	}
	delete(k.values, "attempts") // Slotted applies it, so parse must not apply Limit
	if exponent > 63 {
		k.Fail(fmt.Errorf("max_exponent %d: want 63 or less", exponent))
	}
	return Slotted(k.must("slot"), exponent, attempts)
}

func (more parser) names() string {
	list := slices.AppendSeq(slices.Collect(maps.Keys(readers)), maps.Keys(more))
	slices.Sort(list)
	return strings.Join(append(list, "first_now(...)", "limit(...)", "max(...)", "sum(...)",
		"then(...)"), ", ")
}

func (more parser) parseCombination(name, rest string, depth int) (Policy, error) {
	inside, ok := strings.CutSuffix(rest, ")")
	if !ok {
		return nil, fmt.Errorf("%s( has no ) at its end", name)
	}
	parts, err := split(inside)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	want := map[string]int{"first_now": 1, "limit": 2, "then": 3, "max": -1, "sum": -1}[name]
	if want == 0 {
		return nil, fmt.Errorf("unknown policy %q: want one of %s", name, more.names())
	}
	if want > 0 && len(parts) != want {
		return nil, fmt.Errorf("%s has %d parts between semicolons, want %d", name, len(parts),
			want)
	}
	var ps []Policy
	count := 0
	for i, part := range parts {
		if i == 1 && want > 1 {
			if count, err = parseCount(part, 0); err != nil {
				return nil, fmt.Errorf("%s: count %w", name, err)
			}
			continue
		}
		p, err := more.parse(part, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		ps = append(ps, p)
	}
	p := map[string]func() Policy{
		"first_now": func() Policy { return FirstNow(ps[0]) },
		"limit":     func() Policy { return Limit(ps[0], count) },
		"then":      func() Policy { return Then(ps[0], count, ps[1]) },
		"max":       func() Policy { return Max(ps...) },
		"sum":       func() Policy { return Sum(ps...) },
	}[name]()
	return p, Validate(p)
}

// parseCount accepts any number of steps that String writes. An int of 32 bits holds at most
// 2^31-1, which is then the result for higher numbers.
func parseCount(text string, least int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < uint64(least) {
		return 0, fmt.Errorf("%q: want a whole number from %d to %d", text, least,
			uint32(math.MaxUint32))
	}
	return int(min(n, math.MaxInt)), nil
}

// split splits text at the semicolons outside of parentheses.
func split(text string) ([]string, error) {
	var parts []string
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return nil, errors.New("a ) without its (")
			}
		case ';':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		}
	}
	if depth != 0 {
		return nil, errors.New("a ( without its )")
	}
	return append(parts, strings.TrimSpace(text[from:])), nil
}
