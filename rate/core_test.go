package rate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// naive is a simple model of a Bucket, which computes the tokens from all events since the origin.
type naive struct {
	rate, burst float64
	times       []time.Duration
	taken       []float64 // negative: put in
}

func (m *naive) tokens(now time.Duration) float64 {
	tokens, at := m.burst, time.Duration(0)
	for i, t := range m.times {
		tokens = min(tokens+m.rate*(t-at).Seconds(), m.burst)
		tokens = min(tokens-m.taken[i], m.burst)
		at = t
	}
	return min(tokens+m.rate*(now-at).Seconds(), m.burst)
}

func (m *naive) add(now time.Duration, n float64) {
	m.times, m.taken = append(m.times, now), append(m.taken, n)
}

func TestBucketAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 4))
		rate, burst := 0.1+100*random.Float64(), 1+float64(random.IntN(20))
		b, model := NewBucket(rate, burst), naive{rate: rate, burst: burst}
		now := time.Duration(0)
		for step := range 300 {
			now += time.Duration(random.ExpFloat64() * float64(time.Second) / rate)
			n := float64(1 + random.IntN(4))
			want := model.tokens(now)
			if got := b.Tokens(now); math.Abs(got-want) > 1e-6 {
				t.Fatalf("seed %d, step %d: %v tokens, want %v", seed, step, got, want)
			}
			switch random.IntN(4) {
			case 0:
				b.Add(now, n)
				model.add(now, -n)
			case 1:
				b.Add(now, -n)
				model.add(now, n)
			default:
				wait := b.Wait(now, n)
				if b.Take(now, n) {
					model.add(now, n)
					if wait != 0 || want < n-1e-6 {
						t.Fatalf("seed %d, step %d: took %v of %v tokens, wait was %v", seed, step,
							n, want, wait)
					}
					break
				}
				if want > n+1e-6 || wait <= 0 {
					t.Fatalf("seed %d, step %d: refused %v of %v tokens, wait %v", seed, step, n,
						want, wait)
				}
				if later := model.tokens(now + wait); n <= burst && math.Abs(later-n) > 1e-6 {
					t.Fatalf("seed %d, step %d: after %v there are %v tokens, want %v", seed, step,
						wait, later, n)
				}
			}
		}
	}
}

func TestBucketLimits(t *testing.T) {
	var zero Bucket
	if zero.Take(time.Hour, 1) || zero.Wait(time.Hour, 1) != math.MaxInt64 || !zero.Take(0, 0) {
		t.Error("the zero Bucket holds tokens")
	}
	b := NewBucket(-1, -1)
	if b.Tokens(time.Hour) != 0 {
		t.Error("negative values do not count as 0")
	}
	b = NewBucket(10, 5)
	b.Set(time.Second, 2, 3)
	if got := b.Tokens(time.Second); got != 3 {
		t.Errorf("after the burst was lowered to 3 there are %v tokens", got)
	}
	if got := b.Wait(time.Second, 5); got != time.Second {
		t.Errorf("5 tokens at 2 a second with 3 there: wait %v, want 1s", got)
	}
	b.Set(time.Second, 1e-9, 3)
	if got := b.Wait(time.Second, 100); got != math.MaxInt64 {
		t.Errorf("97 tokens at one in 30 years: wait %v, want the longest Duration", got)
	}
}

// TestGCRAIsABucket checks that both algorithms allow the same events and return the same waits.
func TestGCRAIsABucket(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 5))
		g := GCRA{Interval: time.Duration(1+random.IntN(20)) * ms, Burst: 1 + random.IntN(8)}
		b := NewBucket(1/g.Interval.Seconds(), float64(g.Burst))
		var state, now time.Duration
		allowed := 0
		for step := range 2000 {
			now += time.Duration(random.IntN(30)) * ms
			n := 1 + random.IntN(g.Burst)
			next, wait := g.Take(state, now, n)
			want := b.Wait(now, float64(n))
			if d := wait - want; d > time.Microsecond || d < -time.Microsecond {
				t.Fatalf("seed %d, step %d: GCRA waits %v, the bucket %v", seed, step, wait, want)
			}
			if ok := b.Take(now, float64(n)); ok != (wait == 0) || ok == (next == state) {
				t.Fatalf("seed %d, step %d: the bucket allows: %v, GCRA waits %v", seed, step, ok,
					wait)
			}
			if wait == 0 {
				allowed++
			}
			state = next
		}
		if allowed < 100 || allowed > 1999 {
			t.Errorf("seed %d: %d of 2000 allowed, want some refused", seed, allowed)
		}
	}
}

func TestGCRALimits(t *testing.T) {
	for _, v := range []struct {
		limit       GCRA
		state, now  time.Duration
		n           int
		after, wait time.Duration
	}{
		{GCRA{}, 5, 7, 1000, 5, 0},
		{GCRA{Interval: 10}, 0, 7, 1, 17, 0},
		{GCRA{Interval: 10}, 17, 7, 1, 17, 10},
		{GCRA{Interval: 10, Burst: 2}, 17, 7, 1, 27, 0},
		{GCRA{Interval: 10, Burst: 2}, 17, 7, 3, 17, math.MaxInt64},
		{GCRA{Interval: 10}, 17, 7, 0, 17, 0},
		{GCRA{Interval: math.MaxInt64 / 2, Burst: 9}, 0, 7, 9, math.MaxInt64, 0},
	} {
		if after, wait := v.limit.Take(v.state, v.now, v.n); after != v.after || wait != v.wait {
			t.Errorf("%+v.Take(%d, %d, %d) = %d, %d; want %d, %d",
				v.limit, v.state, v.now, v.n, after, wait, v.after, v.wait)
		}
	}
}

func TestPacerFollowsAdvice(t *testing.T) {
	p := newPacer(Options{}.withDefaults())
	want := func(now, wait time.Duration, text string) {
		t.Helper()
		if got := p.wait(now, 0, 1); got != wait {
			t.Errorf("%s: wait %v, want %v", text, got, wait)
		}
	}
	want(0, 0, "fresh")
	p.observe(0, Advice{RetryAfter: 10 * time.Second}, 0.5)
	want(0, 10500*ms, "a pause of 10s with jitter of 0.5 of a tenth")
	p.observe(5*time.Second, Advice{RetryAfter: time.Second}, 0)
	want(5*time.Second, 5500*ms, "a shorter pause within")
	p.observe(5*time.Second, Advice{RetryAfter: time.Hour}, 0)
	want(5*time.Second, 5*time.Minute, "an hour, beyond the maximum")
	now := 10 * time.Minute
	p.observe(now, Advice{Remaining: 2, Reset: 20 * time.Second, Limit: 3,
		Window: 30 * time.Second}, 0)
	for i := range 2 {
		if !p.take(now, 1) {
			t.Fatalf("event %d of a rest of 2 is refused", i+1)
		}
	}
	want(now, 20*time.Second, "with nothing left")
	p.observe(now+time.Second,
		Advice{Remaining: 1, Reset: 19 * time.Second, Limit: 3, Window: 30 * time.Second}, 0)
	want(now+time.Second, 19*time.Second, "after an older response")
	now += 20 * time.Second
	for i := range 3 {
		if !p.take(now, 1) {
			t.Fatalf("event %d of the next window is refused", i+1)
		}
	}
	want(now, 30*time.Second, "with nothing left of the next window")
	now += 95 * time.Second // in the fourth window, which has 25s to go
	if !p.take(now, 3) || p.take(now, 1) {
		t.Error("a later window does not have 3 events")
	}
	want(now, 25*time.Second, "in a later window")
	p.observe(now, Advice{Remaining: 0, Reset: time.Minute}, 0)
	want(now, time.Minute, "with a new window")
	want(now+time.Minute, 0, "after a window whose successor is unknown")
}

// TestPacerPlansWindows checks the wait of events that do not fit into the next window of a quota:
// they wait for a later one. Reserved events use up the windows in which they happen. Example: 25
// events use up two windows of 10, and leave 5 events of the third one.
func TestPacerPlansWindows(t *testing.T) {
	p := newPacer(Options{}.withDefaults())
	advice := Advice{Remaining: 0, Reset: 10 * time.Second, Limit: 10, Window: 10 * time.Second}
	p.observe(0, advice, 0)
	for _, c := range []struct {
		ahead, n int
		want     time.Duration
	}{
		{0, 1, 10 * time.Second}, {0, 10, 10 * time.Second}, {10, 1, 20 * time.Second},
		{20, 5, 30 * time.Second},
		{0, 25, 10 * time.Second}, // more than a window: once a window is unused, see quota.allows
		{math.MaxInt, 1, math.MaxInt64},
	} {
		if got := p.wait(0, c.ahead, c.n); got != c.want {
			t.Errorf("wait of %d events behind %d: %v, want %v", c.n, c.ahead, got, c.want)
		}
	}
	p.reserve(0, 25)
	now := 35 * time.Second // the third window, of which 5 events are left
	if p.take(now, 6) || !p.take(now, 5) {
		t.Errorf("%d events are left after 25 in three windows of 10, want 5", p.quota.left)
	}
	p.reserve(now, 1)
	now += time.Hour
	if !p.take(now, 10) {
		t.Errorf("%d events are left of an unused window, want 10", p.quota.left)
	}
}

// TestLargestLimit checks that the largest limit of a quota does not overflow when its next window
// begins.
func TestLargestLimit(t *testing.T) {
	p := newPacer(Options{}.withDefaults())
	advice := Advice{Remaining: 5, Reset: time.Second, Limit: math.MaxInt, Window: time.Second}
	p.observe(0, advice, 0)
	for now := 2 * time.Second; now < 5*time.Second; now += time.Second {
		if !p.take(now, 1) {
			t.Errorf("no event is allowed after %v: %d are left", now, p.quota.left)
		}
	}
}

// TestLongestPause checks that the longest MaxPause does not overflow.
func TestLongestPause(t *testing.T) {
	p := newPacer(Options{MaxPause: math.MaxInt64}.withDefaults())
	now := time.Hour
	p.observe(now, Advice{RetryAfter: math.MaxInt64}, 0.5)
	if p.take(now+time.Hour, 1) {
		t.Error("an endless pause is over")
	}
	p = newPacer(Options{MaxPause: math.MaxInt64}.withDefaults())
	p.observe(now, Advice{Reset: math.MaxInt64}, 0.5)
	if p.take(now+time.Hour, 1) {
		t.Error("an endless quota is over")
	}
}

// TestBucketWithoutALimit checks values that are not finite.
func TestBucketWithoutALimit(t *testing.T) {
	for _, limit := range []float64{math.Inf(1), math.MaxFloat64} {
		b := NewBucket(limit, 5)
		b.Set(0, limit, 5)
		for now := range time.Duration(3) {
			if b.Take(now, 6) {
				t.Errorf("rate %v: took more than the burst", limit)
			}
			if !b.Take(now, 5) && now != 0 {
				t.Errorf("rate %v: the bucket is empty after %d ns", limit, now)
			}
			if got := b.Tokens(now); got != 0 {
				t.Errorf("rate %v: %v tokens after a full burst, want 0", limit, got)
			}
		}
	}
	b := NewBucket(1, math.NaN())
	if b.Take(0, 1) || b.Take(0, math.NaN()) {
		t.Error("a bucket without burst gave a token")
	}
}

// TestObserveNegativeLimit checks that a limit of -1, which some servers send for "no limit", does
// not stop all events after the first window.
func TestObserveNegativeLimit(t *testing.T) {
	p := newPacer(Options{MaxPause: time.Hour})
	p.observe(0, Advice{Limit: -1, Window: time.Second, Remaining: 1, Reset: time.Second}, 0)
	if !p.take(0, 1) || p.take(0, 1) {
		t.Error("the stated remaining event is not kept")
	}
	if at := 2 * time.Second; !p.take(at, 1) {
		t.Errorf("after the window no event is allowed; wait %v", p.wait(at, 0, 1))
	}
}

// TestObserveNegativeRemaining checks that a Remaining below 0 does not shrink the next windows.
func TestObserveNegativeRemaining(t *testing.T) {
	p := newPacer(Options{}.withDefaults())
	advice := Advice{Remaining: -100, Reset: time.Second, Limit: 5, Window: time.Second}
	p.observe(0, advice, 0)
	if p.take(0, 1) || !p.take(time.Second, 5) {
		t.Errorf("after a Remaining of -100, the wait is %v", p.wait(time.Second, 0, 5))
	}
}
