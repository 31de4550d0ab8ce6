package vectors

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Subject is a policy to compare with a case.
type Subject struct {
	Err error // error of the construction or the validation; nil if there was none
	// At returns the wait at step n, without draws for the steps before it. ok is false if the
	// policy gives up at this step.
	At func(n int, src rand.Source) (d time.Duration, ok bool)
	// Walk begins a sequence from a fresh state. Each call of the result returns the next wait. Nil
	// means that the waits do not depend on earlier ones: At is enough.
	Walk func(src rand.Source) func() (d time.Duration, ok bool)
	// Bounds returns the bounds of the waits at step n. In a case of kind random, Check verifies
	// that all draws and the library's extremes lie within them. Nil means that the bounds are
	// unknown.
	Bounds func(n int) (lowest, mean, highest time.Duration)
}

// Policy returns a Subject for p, which has the methods of a backoff.Policy. at returns the state
// of p at step n.
func Policy[S any](p interface {
	Next(s S, src rand.Source) (time.Duration, S, bool)
}, at func(n int) S) Subject {
	subject := Subject{
		At: func(n int, src rand.Source) (time.Duration, bool) {
			d, _, ok := p.Next(at(n), src)
			return d, ok
		},
		Walk: func(src rand.Source) func() (time.Duration, bool) {
			s := at(0)
			return func() (time.Duration, bool) {
				d, next, ok := p.Next(s, src)
				s = next
				return d, ok
			}
		},
	}
	if v, ok := p.(interface{ Validate() error }); ok {
		subject.Err = v.Validate()
	}
	if b, ok := p.(interface {
		Bounds(n int) (lowest, mean, highest time.Duration)
	}); ok {
		subject.Bounds = b.Bounds
	}
	return subject
}

// Check compares s with a case of kind exact, random or support.
func Check(t *testing.T, c Case, s Subject) {
	t.Helper()
	if c.Ends == "error" {
		checkError(t, c.Error, s.Err)
	}
	switch c.Kind {
	case "exact":
		checkExact(t, c, s)
	case "random":
		checkRandom(t, c, s)
	case "support":
		checkSupport(t, c, s)
	default:
		t.Fatalf("kind %q is not known", c.Kind)
	}
}

// checkError compares err with want, the library's error in the form "class: text". It ignores the
// class. The text is null for a Java error without text.
func checkError(t *testing.T, want string, err error) {
	t.Helper()
	_, text, _ := strings.Cut(want, ": ")
	switch {
	case err == nil:
		t.Errorf("no error, want %q", want)
	case text != "null" && text != err.Error():
		t.Errorf("error %q, want %q", err, text)
	}
}

func checkExact(t *testing.T, c Case, s Subject) {
	t.Helper()
	src := Source(c, 0)
	for _, p := range c.Points {
		n := float64(p.N)
		if n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
			t.Fatalf("a point at n = %v: this policy has no such step", n)
		}
		if d, ok := s.At(int(n), src); ok != (p.Error == "") || ok && d != p.Delay.Duration() {
			t.Errorf("n = %v: %d ns, %v; want %d ns, error %q", n, d, ok, p.Delay, p.Error)
		}
	}
	for i, want := range c.Delays {
		if d, ok := s.At(c.FirstN+i, src); !ok || d != want.Duration() {
			t.Errorf("n = %d: %d ns, %v; want %d ns", c.FirstN+i, d, ok, want)
		}
	}
	if c.Ends == "stop" {
		if d, ok := s.At(c.FirstN+len(c.Delays), src); ok {
			t.Errorf("n = %d: %d ns; want the end", c.FirstN+len(c.Delays), d)
		}
	}
	if s.Walk == nil || c.FirstN != 0 || c.Ends == "error" {
		return
	}
	next := s.Walk(src)
	for i, want := range c.Delays {
		if d, ok := next(); !ok || d != want.Duration() {
			t.Errorf("walk, n = %d: %d ns, %v; want %d ns", i, d, ok, want)
		}
	}
	if _, ok := next(); ok != (c.Ends != "stop") {
		t.Errorf("walk after %d waits: goes on %v, want that it %s", len(c.Delays), ok, c.Ends)
	}
}

// draws returns the number of our own draws. Fewer draws only make the comparison less sharp.
func draws() int {
	if testing.Short() {
		return 4000
	}
	return 20_000
}

// Source returns the random source for step n of a case. Its seed is the same in every run.
func Source(c Case, n int) rand.Source {
	h := fnv.New64a()
	h.Write([]byte(c.Policy + "/" + c.Name))
	return rand.NewPCG(h.Sum64(), uint64(n))
}

func checkRandom(t *testing.T, c Case, s Subject) {
	t.Helper()
	if c.Ends == "stop" && len(c.Steps) > 0 {
		last := c.Steps[len(c.Steps)-1].N
		if d, ok := s.At(last+1, Source(c, last+1)); ok {
			t.Errorf("n = %d: %d ns; want the end", last+1, d)
		}
	}
	var walks [][]time.Duration // by step
	if c.Sampling == "sequence" && s.Walk != nil {
		walks = walk(c, s)
	}
	for _, step := range c.Steps {
		if step.Error != "" {
			_, ok := s.At(step.N, Source(c, step.N))
			if ok && s.Err == nil {
				t.Errorf("n = %d: no error, want %q", step.N, step.Error)
			}
			continue
		}
		sample := Sample{c.Samples, step, nil, nil}
		if walks != nil {
			sample.ours = walks[step.N]
			if step.N > 0 {
				sample.before = walks[step.N-1]
			}
		} else {
			sample.ours = independent(t, c, s, step.N)
		}
		if s.Bounds != nil && step.N >= 0 { // Bounds counts from 0
			checkBounds(t, step, s, sample.ours)
		}
		sample.Check(t)
		if t.Failed() {
			return // one wrong step is enough
		}
	}
}

func walk(c Case, s Subject) [][]time.Duration {
	last := 0
	for _, step := range c.Steps {
		last = max(last, step.N)
	}
	walks := make([][]time.Duration, last+1)
	src := Source(c, 0)
	for range draws() {
		next := s.Walk(src)
		for n := range walks {
			d, ok := next()
			if !ok {
				break
			}
			walks[n] = append(walks[n], d)
		}
	}
	return walks
}

func independent(t *testing.T, c Case, s Subject, n int) []time.Duration {
	t.Helper()
	src := Source(c, n)
	list := make([]time.Duration, draws())
	for i := range list {
		d, ok := s.At(n, src)
		if !ok {
			t.Fatalf("n = %d: it gave up", n)
		}
		list[i] = d
	}
	return list
}

func checkBounds(t *testing.T, step Step, s Subject, ours []time.Duration) {
	t.Helper()
	lowest, mean, highest := s.Bounds(step.N)
	if step.Min.Duration() < lowest || step.Max.Duration() > highest || mean < lowest ||
		mean > highest {
		t.Errorf("n = %d: bounds %d, %d, %d ns do not hold the library's %d to %d ns", step.N,
			lowest, mean, highest, step.Min, step.Max)
	}
	for _, d := range ours {
		if d < lowest || d > highest {
			t.Errorf("n = %d: a draw of %d ns is outside the bounds %d to %d ns", step.N, d, lowest,
				highest)
			return
		}
	}
}

func checkSupport(t *testing.T, c Case, s Subject) {
	t.Helper()
	last := -1
	for _, step := range c.Steps {
		values := step.Values
		if values == nil {
			for k := range step.Last + 1 {
				values = append(values, Nanos(k)*step.Unit)
			}
		}
		counts, total := map[time.Duration]int{}, draws()
		for _, d := range independent(t, c, s, step.N) {
			counts[d]++
		}
		for _, v := range values {
			p := 1 / float64(len(values))
			if got := float64(counts[v.Duration()]) / float64(total); !sameShare(got, p, total,
				math.MaxInt32) {
				t.Errorf("n = %d: %d ns has a share of %.5f, want %.5f", step.N, v, got, p)
			}
			delete(counts, v.Duration())
		}
		for d := range counts {
			t.Errorf("n = %d: %d ns is not possible", step.N, d)
		}
		last = step.N
	}
	if c.Ends == "stop" {
		if d, ok := s.At(last+1, Source(c, last+1)); ok {
			t.Errorf("n = %d: %d ns; want the end", last+1, d)
		}
	}
}
