package main

// These tests compare the ports in backoff/compat with the original libraries at random settings.
// The settings include zero, negative values, values near the ends of the range, and not-a-number.
// A failure prints the settings.

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	cenkalti "github.com/cenkalti/backoff/v7"
	jpillora "github.com/jpillora/backoff"
	sethvargo "github.com/sethvargo/go-retry"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
)

// points draws settings.
type points struct{ *rand.Rand }

func newPoints(t *testing.T) points {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	return points{rand.New(rand.NewPCG(seed, 2))}
}

func (r points) duration() time.Duration {
	switch r.IntN(9) {
	case 0:
		return 0
	case 1:
		return -time.Duration(r.Int64N(1<<r.IntN(62)) + 1)
	case 2:
		return math.MaxInt64 - time.Duration(r.Int64N(3000))
	case 3:
		return math.MinInt64 + time.Duration(r.Int64N(3))
	case 4:
		return time.Duration(r.IntN(5))
	case 5:
		return time.Duration(r.IntN(100)) * time.Millisecond
	case 6:
		return time.Duration(r.IntN(100)) * time.Second
	}
	return time.Duration(r.Int64N(1 << r.IntN(63)))
}

func (r points) float() float64 {
	switch r.IntN(10) {
	case 0:
		return 0
	case 1:
		return -r.Float64() * 3
	case 2:
		return math.Inf(1)
	case 3:
		return math.NaN()
	case 4:
		return 1e308 * r.Float64()
	case 5:
		return 1
	case 6:
		return r.Float64()
	}
	return 1 + r.Float64()*4
}

const draws = 20_000

func TestJpillora(t *testing.T) {
	r := newPoints(t)
	for range draws {
		b := jpillora.Backoff{Min: r.duration(), Max: r.duration(), Factor: r.float()}
		n := float64(r.IntN(80))
		if r.IntN(5) == 0 {
			n = r.float() * 100
		}
		p := compat.Jpillora{Min: b.Min, Max: b.Max, Factor: b.Factor}
		want, got := b.ForAttempt(n), p.ForAttempt(n, 0)
		if want != got {
			t.Fatalf("%+v n %v: %d want %d", p, n, got, want)
		}
		b.Jitter, p.Jitter = true, true
		k := r.IntN(60)
		low, _, high := p.Bounds(k)
		if d := b.ForAttempt(float64(k)); d < low || d > high {
			t.Fatalf("jitter %+v n %v: drew %d, bounds %d..%d", p, k, d, low, high)
		}
	}
}

// cenkalti returns the library's policy and the port with the same settings.
func (r points) cenkalti(randomization float64) (*cenkalti.ExponentialBackOff, compat.Cenkalti) {
	p := compat.Cenkalti{
		Initial: r.duration(), Max: r.duration(), Multiplier: r.float(),
		Randomization: randomization,
		Compat:        true,
	}
	b := &cenkalti.ExponentialBackOff{
		InitialInterval: p.Initial, MaxInterval: p.Max, Multiplier: p.Multiplier,
		RandomizationFactor: p.Randomization,
	}
	b.Reset()
	return b, p
}

func TestCenkalti(t *testing.T) {
	r := newPoints(t)
	for range draws {
		b, p := r.cenkalti(0)
		var s backoff.State
		for n := range 1 + r.IntN(70) {
			want := b.NextBackOff()
			var got time.Duration
			got, s, _ = p.Next(s, nil)
			if want != got {
				t.Fatalf("%+v n %v: %d want %d", p, n, got, want)
			}
		}
	}
	for range draws {
		b, p := r.cenkalti(r.float())
		for n := range 1 + r.IntN(70) {
			low, _, high := p.Bounds(n)
			if d := b.NextBackOff(); d < low || d > high {
				t.Fatalf("jitter %+v n %v: drew %d, bounds %d..%d", p, n, d, low, high)
			}
		}
	}
}

func TestSethvargo(t *testing.T) {
	r := newPoints(t)
	for range draws {
		base := r.duration()
		p := compat.Sethvargo{Base: base, Compat: true}
		var b sethvargo.Backoff
		func() {
			defer func() {
				if recover() != nil {
					b = nil
				}
			}()
			switch r.IntN(3) {
			case 0:
				b = sethvargo.NewConstant(base)
			case 1:
				b, p.Shape = sethvargo.NewExponential(base), compat.SethvargoExponential
			case 2:
				b, p.Shape = sethvargo.NewFibonacci(base), compat.SethvargoFibonacci
			}
		}()
		if b == nil {
			if _, _, ok := p.Next(backoff.State{}, nil); ok || p.Validate() == nil {
				t.Fatalf("%+v is not refused", p)
			}
			continue
		}
		for range r.IntN(4) {
			switch r.IntN(3) {
			case 0:
				d := r.duration()
				b = sethvargo.WithCappedDuration(d, b)
				p.Wrappers = append(p.Wrappers, compat.SethvargoCapped(d))
			case 1:
				k := uint64(r.IntN(90))
				b = sethvargo.WithMaxRetries(k, b)
				p.Wrappers = append(p.Wrappers, compat.SethvargoMaxRetries(k))
			case 2:
				if r.IntN(8) == 0 {
					b = sethvargo.WithJitterPercent(0, b)
					p.Wrappers = append(p.Wrappers, compat.SethvargoJitterPercent(0))
				}
			}
		}
		var s backoff.State
		for n := range 1 + r.IntN(100) {
			want, stop := b.Next()
			got, next, ok := p.Next(s, nil)
			s = next
			if stop == ok || ok && want != got {
				t.Fatalf("%+v n %v: %d %v want %d %v", p, n, got, ok, want, !stop)
			}
			if stop {
				break
			}
		}
	}
}
