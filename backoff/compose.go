//penstock:pure

package backoff

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limit returns a policy that waits like p, and ends after the given number of attempts, including
// the first call. Example: Limit(p, 5) gives the first 4 waits of p. With 1 or less there is no
// wait. If p ends earlier, Limit changes nothing.
func Limit(p Policy, attempts int) Policy {
	if inner, ok := p.(limited); ok {
		return limited{inner.p, min(inner.attempts, step(attempts))}
	}
	return limited{p, step(attempts)}
}

type limited struct {
	p        Policy
	attempts uint32
}

func (p limited) ended(n uint32) bool { return uint64(n)+1 >= uint64(p.attempts) }

func (p limited) Next(s State, src rand.Source) (time.Duration, State, bool) {
	if p.ended(s.N) {
		return 0, s, false
	}
	return p.p.Next(s, src)
}

func (p limited) Bounds(n int) (lowest, mean, highest time.Duration) {
	if p.ended(step(n)) {
		return 0, 0, 0
	}
	return Bounds(p.p, n)
}

func (p limited) Validate() error {
	if p.attempts < 1 {
		return fmt.Errorf("attempts %d: want 1 or more", p.attempts)
	}
	return validatePart(p.p)
}

// String writes the limit as a key of the policy, as in "fixed delay=1s attempts=5". There are two
// exceptions: slotted already has a key named attempts, and a combination of policies has no keys.
// For these String writes limit(SPEC; 5).
func (p limited) String() string {
	text, attempts := describe(p.p), strconv.FormatUint(uint64(p.attempts), 10)
	if _, ok := p.p.(Binary); ok || strings.HasSuffix(text, ")") {
		return "limit(" + text + "; " + attempts + ")"
	}
	return text + " attempts=" + attempts
}

// Then returns a policy that takes its first n waits from policy a, and the rest from policy b,
// which begins at step 0. If policy a has fewer than n waits, b follows after the last of them. If
// policy a gives up for another reason, such as the time waited, the whole policy ends. An n below
// 0 counts as 0.
func Then(a Policy, n int, b Policy) Policy {
	return sequence{a, waits(a, step(n)), step(n), b}
}

type sequence struct {
	a     Policy
	n     uint32 // waits of a before b follows
	given uint32 // the argument n of Then, for String
	b     Policy
}

// waits returns the number of waits that p has, at most limit.
func waits(p Policy, limit uint32) uint32 {
	low, high := uint32(0), limit
	for low < high {
		if middle := low + (high-low)/2; ends(p, middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func (p sequence) Next(s State, src rand.Source) (time.Duration, State, bool) {
	if s.N < p.n {
		return p.a.Next(s, src)
	}
	return shifted(p.b, s, p.n, src)
}

// shifted returns the wait of p at s, not counting the first n waits of s.
func shifted(p Policy, s State, n uint32, src rand.Source) (time.Duration, State, bool) {
	inner := s
	inner.N -= n
	d, next, ok := p.Next(inner, src)
	if !ok {
		return 0, s, false
	}
	step := next.Step
	next = s.After(d)
	next.Step = step
	return d, next, true
}

func (p sequence) Bounds(n int) (lowest, mean, highest time.Duration) {
	if step(n) < p.n {
		return Bounds(p.a, n)
	}
	return Bounds(p.b, int(step(n)-p.n))
}

func (p sequence) Validate() error { return errors.Join(validatePart(p.a), validatePart(p.b)) }

func (p sequence) String() string {
	return "then(" + describe(p.a) + "; " + strconv.FormatUint(uint64(p.given), 10) + "; " +
		describe(p.b) + ")"
}

// FirstNow returns a policy with a first wait of 0. Its second wait is the first wait of p, and so
// on. Use it for failures that mostly disappear at once.
func FirstNow(p Policy) Policy { return firstNow{p} }

type firstNow struct{ p Policy }

func (p firstNow) Next(s State, src rand.Source) (time.Duration, State, bool) {
	if s.N == 0 {
		return 0, s.After(0), true
	}
	return shifted(p.p, s, 1, src)
}

func (p firstNow) Bounds(n int) (lowest, mean, highest time.Duration) {
	if n <= 0 {
		return 0, 0, 0
	}
	return Bounds(p.p, n-1)
}

func (p firstNow) Validate() error { return validatePart(p.p) }
func (p firstNow) String() string  { return "first_now(" + describe(p.p) + ")" }

// Sum returns a policy that waits for the sum of the waits of ps, at most the largest Duration. It
// gives up as soon as one of ps does. Example: Sum(Exponential(...), Random(time.Second)) adds a
// random time below 1 s to each exponential wait. Without policies it waits 0.
func Sum(ps ...Policy) Policy { return sum(slices.Clone(ps)) }

type sum []Policy

func (ps sum) Next(s State, src rand.Source) (time.Duration, State, bool) {
	return combine(ps, s, src, plus)
}

// combine joins the waits of all ps at state s with the function join. If a policy has changed
// State.Step, the next state keeps the changed value, or the last one if several have changed it.
func combine(ps []Policy, s State, src rand.Source,
	join func(a, b time.Duration) time.Duration) (time.Duration, State, bool) {
	var total time.Duration
	kept := s.Step
	for _, p := range ps {
		d, next, ok := p.Next(s, src)
		if !ok {
			return 0, s, false
		}
		if next.Step != s.Step {
			kept = next.Step
		}
		total = join(total, d)
	}
	next := s.After(total)
	next.Step = kept
	return total, next, true
}

func (ps sum) Bounds(n int) (lowest, mean, highest time.Duration) {
	for _, p := range ps {
		if ends(p, step(n)) {
			return 0, 0, 0
		}
		l, m, h := Bounds(p, n)
		lowest, mean, highest = plus(lowest, l), plus(mean, m), plus(highest, h)
	}
	return lowest, mean, highest
}

func (ps sum) Validate() error { return validateAll(ps) }
func (ps sum) String() string  { return "sum(" + describeAll(ps) + ")" }

// Max returns a policy that waits for the longest of the waits of ps. It gives up as soon as one of
// ps does. Without policies it waits 0.
func Max(ps ...Policy) Policy { return longest(slices.Clone(ps)) }

type longest []Policy

func (ps longest) Next(s State, src rand.Source) (time.Duration, State, bool) {
	return combine(ps, s, src, func(a, b time.Duration) time.Duration { return max(a, b) })
}

// Bounds computes the mean of several policies as if the waits of each were uniform between the
// lowest and the highest.
func (ps longest) Bounds(n int) (lowest, mean, highest time.Duration) {
	var lows, highs []float64
	for _, p := range ps {
		if ends(p, step(n)) {
			return 0, 0, 0
		}
		l, m, h := Bounds(p, n)
		lowest, mean, highest = max(lowest, l), max(mean, m), max(highest, h)
		lows, highs = append(lows, float64(l)), append(highs, float64(h))
	}
	if highest == lowest || len(ps) == 1 {
		return lowest, mean, highest
	}
	const cells = 1000
	above := 0.0 // integral of P(longest > x) from lowest to highest
	for i := range cells {
		x := float64(lowest) + (float64(i)+.5)/cells*float64(highest-lowest)
		below := 1.0
		for j := range lows {
			if x < highs[j] {
				below *= max(x-lows[j], 0) / (highs[j] - lows[j])
			}
		}
		above += 1 - below
	}
	mean = lowest + scale(highest-lowest, above/cells)
	return lowest, min(mean, highest), highest
}

func (ps longest) Validate() error { return validateAll(ps) }
func (ps longest) String() string  { return "max(" + describeAll(ps) + ")" }

// zeros is a source that always returns 0, for calls with a result that does not depend on random
// numbers.
type zeros struct{}

func (zeros) Uint64() uint64 { return 0 }

// ends reports whether p gives up at step n.
func ends(p Policy, n uint32) bool {
	_, _, ok := p.Next(State{N: n}, zeros{})
	return !ok
}

// validatePart checks a policy inside another one, which must not be nil.
func validatePart(p Policy) error {
	if p == nil {
		return errors.New("a policy is nil")
	}
	return Validate(p)
}

func validateAll(ps []Policy) error {
	if len(ps) == 0 {
		return errors.New("no policy to combine")
	}
	var faults []error
	for i, p := range ps {
		if err := validatePart(p); err != nil {
			faults = append(faults, fmt.Errorf("policy %d: %w", i+1, err))
		}
	}
	return errors.Join(faults...)
}

// describe returns p in the form that Parse reads, or the type of a p that has no String method.
func describe(p Policy) string {
	if s, ok := p.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", p)
}

func describeAll(ps []Policy) string { return joined(ps, "; ", describe) }
