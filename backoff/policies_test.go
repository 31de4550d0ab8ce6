package backoff_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

func seeded(seed uint64) rand.Source { return rand.NewPCG(seed, 1) }

// foreign stands for a policy of another package. It waits n seconds at step n, six times.
type foreign struct{}

func (foreign) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	if s.N >= 6 {
		return 0, s, false
	}
	d := time.Duration(s.N) * time.Second
	return d, s.After(d), true
}

// waits returns the first n waits of p.
func waits(p backoff.Policy, n int) (list []time.Duration) {
	for i, d := range backoff.Delays(p, seeded(1)) {
		if i == n {
			break
		}
		list = append(list, d)
	}
	return list
}

func TestLadders(t *testing.T) {
	const ms, s, never = time.Millisecond, time.Second, time.Duration(math.MaxInt64)
	for _, c := range []struct {
		p    backoff.Policy
		want []time.Duration
	}{
		{backoff.Ladder{}, []time.Duration{0, 0, 0}},
		{backoff.Fixed(s), []time.Duration{s, s, s}},
		{backoff.Linear(s, 2*s, 6*s), []time.Duration{s, 3 * s, 5 * s, 6 * s, 6 * s}},
		{backoff.Exponential(ms, 3, 50*ms),
			[]time.Duration{ms, 3 * ms, 9 * ms, 27 * ms, 50 * ms, 50 * ms}},
		{
			backoff.Exponential(100, 1.5, 0),
			[]time.Duration{100, 150, 225, 337, 506, 759}},
		{backoff.Exponential(1, 2, 0), append(powersOf2(), never, never)},
		{backoff.Exponential(never/2, 3, 0), []time.Duration{never / 2, never, never}},
		{backoff.Polynomial(ms, 2, 20*ms), []time.Duration{ms, 4 * ms, 9 * ms, 16 * ms, 20 * ms}},
		{backoff.Polynomial(ms, 0.5, 0), []time.Duration{ms, 1414213, 1732050, 2 * ms}},
		{backoff.Fibonacci(ms, 6*ms),
			[]time.Duration{0, ms, ms, 2 * ms, 3 * ms, 5 * ms, 6 * ms, 6 * ms}},
		{backoff.Table(s, 2*s), []time.Duration{s, 2 * s}},
		{backoff.Table(), nil},
		{backoff.Pattern(backoff.Point{From: 3, Delay: 5 * s}, backoff.Point{From: 1, Delay: s}),
			[]time.Duration{0, s, s, 5 * s, 5 * s}},
		{backoff.Recommended(40*ms, s).Plain(),
			[]time.Duration{80 * ms, 180 * ms, 320 * ms, 500 * ms, 720 * ms, 980 * ms, s, s}},
		{
			backoff.Recommended(3, 0).Plain(),
			[]time.Duration{6, 13, 24, 37, 54}},
	} {
		n := len(c.want)
		if got := waits(c.p, n+1); !slices.Equal(got[:min(n, len(got))], c.want) {
			t.Errorf("%v: %v, want %v", c.p, got, c.want)
		}
	}
}

func powersOf2() (list []time.Duration) {
	for n := range 63 {
		list = append(list, 1<<n)
	}
	return list
}

// TestJitterAtTheCap checks that the range is cut to the cap before the draw.
func TestJitterAtTheCap(t *testing.T) {
	p := backoff.Exponential(100, 2, 1000)
	for _, c := range []struct {
		p         backoff.Ladder
		n         int
		low, high time.Duration
	}{
		{p.Full(), 2, 0, 400},
		{p.Full(), 60, 0, 1000},
		{p.Equal(), 2, 200, 400},
		{p.Equal(), 60, 500, 1000},
		{p.Proportional(.5), 2, 200, 600},
		{p.Proportional(.5), 3, 400, 1000},
		{p.Proportional(.5), 60, 500, 1000},
		{p.Proportional(0), 60, 1000, 1000},
		{p.Additive(.25), 2, 400, 500},
		{p.Additive(.25), 60, 800, 1000},
		{p.Additive(3), 60, 250, 1000},
		{p.Full().Plain(), 60, 1000, 1000},
	} {
		low, mean, high := c.p.Bounds(c.n)
		if low != c.low || high != c.high || mean != (c.low+c.high)/2 {
			t.Errorf("%v at %d: bounds %d, %d, %d; want %d to %d", c.p, c.n, low, mean, high, c.low,
				c.high)
		}
	}
}

// TestSlottedTotals checks the total waits of 802.3 and of the articles: 15 and 16 waits.
func TestSlottedTotals(t *testing.T) {
	// 366.13 ms and 418.51 ms.
	for attempts, want := range map[int]time.Duration{16: 366131200, 17: 418508800} {
		p := backoff.Slotted(51200, 10, attempts)
		var mean, highest time.Duration
		count := 0
		for n := range backoff.Delays(p, seeded(1)) {
			_, m, h := p.Bounds(n)
			mean, highest, count = mean+m, highest+h, count+1
		}
		if highest != want || count != attempts-1 || (mean-want/2).Abs() > 16 {
			t.Errorf("%d attempts: %d waits of at most %v, %v on average; want %v and half of it",
				attempts, count, highest, mean, want)
		}
	}
}

func TestCombinations(t *testing.T) {
	const s = time.Second
	endless := backoff.Fixed(s)
	for _, c := range []struct {
		p    backoff.Policy
		want []time.Duration
	}{
		{backoff.Limit(endless, 3), []time.Duration{s, s}},
		{backoff.Limit(endless, 1), nil},
		{backoff.Limit(endless, -5), nil},
		{backoff.Limit(backoff.Limit(endless, 3), 9), []time.Duration{s, s}},
		{backoff.Limit(backoff.Table(s, 2*s), 9), []time.Duration{s, 2 * s}},
		{backoff.Limit(backoff.Then(endless, 1, backoff.Table(2*s, 3*s)), 3),
			[]time.Duration{s, 2 * s}},
		{backoff.Then(backoff.Table(s, 2*s), 5, backoff.Table(7*s)),
			[]time.Duration{s, 2 * s, 7 * s}},
		{backoff.Then(backoff.Table(s, 2*s), 1, backoff.Table(7*s)), []time.Duration{s, 7 * s}},
		{backoff.Then(endless, -1, backoff.Table(7*s)), []time.Duration{7 * s}},
		{backoff.Then(foreign{}, 100, backoff.Table(9*s)),
			[]time.Duration{0, s, 2 * s, 3 * s, 4 * s, 5 * s, 9 * s}},
		{backoff.FirstNow(backoff.Table(s, 2*s)), []time.Duration{0, s, 2 * s}},
		{backoff.FirstNow(backoff.FirstNow(backoff.Table(s))), []time.Duration{0, 0, s}},
		{backoff.Sum(backoff.Table(s, 2*s), endless), []time.Duration{2 * s, 3 * s}},
		{backoff.Max(backoff.Table(s, 5*s), backoff.Fixed(3*s)), []time.Duration{3 * s, 5 * s}},
		{
			backoff.Then(backoff.FirstNow(backoff.Linear(s, s, 0)), 3,
				backoff.FirstNow(backoff.Table(9*s))),
			[]time.Duration{0, s, 2 * s, 0, 9 * s},
		},
	} {
		if got := waits(c.p, 20); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.p, got, c.want)
		}
		for n, d := range c.want {
			low, mean, high := backoff.Bounds(c.p, n)
			if _, unknown := c.p.(interface{ Bounds(int) }); !unknown && high != math.MaxInt64 &&
				(low != d || mean != d || high != d) {
				t.Errorf("%v at %d: bounds %v, %v, %v; want %v", c.p, n, low, mean, high, d)
			}
		}
	}
}

// TestState checks that the state records each wait, and saturates.
func TestState(t *testing.T) {
	p := backoff.Fixed(math.MaxInt64)
	_, s, _ := p.Next(backoff.State{N: math.MaxUint32, Slept: 1}, nil)
	if want := (backoff.State{N: math.MaxUint32, Prev: math.MaxInt64,
		Slept: math.MaxInt64}); s != want {
		t.Errorf("state %+v, want %+v", s, want)
	}
	before := backoff.State{N: 7, Step: 9, Prev: 3, Slept: 4}
	if d, s, ok := backoff.Table(1).Next(before, nil); d != 0 || s != before || ok {
		t.Errorf("past the end: %v, %+v, %v; want 0 and the state unchanged", d, s, ok)
	}
}

// TestStuckSource checks that a source that always returns the same value neither blocks a draw nor
// lets it leave the bounds.
func TestStuckSource(t *testing.T) {
	for _, bits := range []stuck{0, 1, math.MaxUint64, 1 << 63} {
		for _, c := range every() {
			s := backoff.State{}
			for n := range 70 {
				d, next, ok := c.p.Next(s, bits)
				if !ok {
					break
				}
				if low, _, high := backoff.Bounds(c.p, n); d < low || d > high {
					t.Errorf("%s at %d with the bits %x: %v is not in %v to %v", c.name, n,
						uint64(bits), d, low, high)
				}
				s = next
			}
		}
	}
}

type stuck uint64

func (s stuck) Uint64() uint64 { return uint64(s) }

// TestSeeds checks that the waits of a seed are the same on every platform.
func TestSeeds(t *testing.T) {
	for _, c := range []struct {
		p    backoff.Policy
		want []time.Duration
	}{
		{
			backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Full(),
			[]time.Duration{249309117, 51247548, 863685930, 1825999352, 1141559074, 7472472027}},
		{
			backoff.Exponential(250*time.Millisecond, 1.5, 30*time.Second).Proportional(.3),
			[]time.Duration{324585471, 285561396, 685244002, 1052831086, 1102655355, 2392857834}},
		{
			backoff.Slotted(51200, 10, 16),
			[]time.Duration{51200, 0, 307200, 716800, 460800, 3020800}},
		{
			backoff.Decorrelated(time.Second, 30*time.Second),
			[]time.Duration{2994472936, 1818261282, 4847534130, 13364391590, 9276303291,
				26059784815}},
		{
			backoff.DecorrelatedV2(time.Second, 30*time.Second),
			[]time.Duration{1374267416, 114167905, 3698722074, 5564718007, 3169518190,
				29745347376}},
		{
			backoff.Random(time.Second),
			[]time.Duration{997236467, 102495096, 863685930, 912999675, 285389768, 934059003}},
	} {
		within := time.Duration(0)
		if _, floats := c.p.(backoff.Smooth); floats {
			within = 1
		}
		for i, d := range waits(c.p, len(c.want)) {
			if (d - c.want[i]).Abs() > within {
				t.Errorf("%v at %d: %d ns, want %d within %d", c.p, i, d, c.want[i], within)
			}
		}
	}
}

func TestAdaptive(t *testing.T) {
	a := backoff.Adaptive{Min: time.Second, Max: 10 * time.Second, Grow: 2, Shrink: .5}
	d := time.Duration(0)
	for i, c := range []struct {
		used bool
		want time.Duration
	}{
		{false, time.Second}, {false, 2 * time.Second}, {false, 4 * time.Second},
		{false, 8 * time.Second},
		{false, 10 * time.Second}, {false, 10 * time.Second}, {true, 5 * time.Second},
		{true, 2500 * time.Millisecond},
		{false, 5 * time.Second}, {true, 2500 * time.Millisecond}, {true, 1250 * time.Millisecond},
		{true, time.Second},
	} {
		if d = a.Next(d, c.used); d != c.want {
			t.Fatalf("poll %d: %v, want %v", i, d, c.want)
		}
	}
	if d := (backoff.Adaptive{}).Next(4*time.Minute, false); d != 5*time.Minute {
		t.Errorf("the zero Adaptive grows to %v, want its 5 m", d)
	}
	if d := (backoff.Adaptive{}).Next(4*time.Minute, true); d != time.Second {
		t.Errorf("the zero Adaptive shrinks to %v, want its 1 s", d)
	}
	for _, broken := range []backoff.Adaptive{
		{Min: -1}, {Max: -1}, {Min: time.Hour}, {Grow: 1}, {Grow: math.NaN()}, {Grow: math.Inf(1)},
		{Shrink: 1}, {Shrink: math.NaN()},
	} {
		if broken.Validate() == nil {
			t.Errorf("%+v is taken", broken)
		}
		if d := broken.Next(time.Minute, false); d < 0 || d > 24*time.Hour {
			t.Errorf("%+v waits %v", broken, d)
		}
	}
	if err := a.Validate(); err != nil {
		t.Error(err)
	}
}

// TestLongestIntervals checks that a wait of the longest Duration does not end a Table or a
// Pattern: their next waits follow.
func TestLongestIntervals(t *testing.T) {
	for name, c := range map[string]struct {
		policy backoff.Policy
		want   []time.Duration
	}{
		"table": {backoff.Table(math.MaxInt64, 1), []time.Duration{math.MaxInt64, 1}},
		"pattern": {backoff.Limit(backoff.Pattern(backoff.Point{Delay: math.MaxInt64},
			backoff.Point{From: 1, Delay: 1}), 4), []time.Duration{math.MaxInt64, 1, 1}},
	} {
		var got []time.Duration
		for _, d := range backoff.Delays(c.policy, nil) {
			if got = append(got, d); len(got) > len(c.want) {
				break
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
