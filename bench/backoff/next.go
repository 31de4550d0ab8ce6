package main

import (
	"math/rand/v2"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"
	cenkalti "github.com/cenkalti/backoff/v7"
	jpillora "github.com/jpillora/backoff"
	sethvargo "github.com/sethvargo/go-retry"

	"github.com/penstock-io/penstock/backoff"
)

// Every library computes waits from 100 ms up to 10 s with its own jitter. Its sequence of waits is
// reset after 20 waits (steps), because otherwise most waits would be the maximum. The sequence of
// sethvargo is not reset, because this would need an allocation. It stays at the maximum, where
// sethvargo is fastest.
const (
	first = 100 * time.Millisecond
	limit = 10 * time.Second
	steps = 20
)

// wait stores the result, so that the compiler cannot omit the computation.
var wait time.Duration

func nextOurs(src rand.Source) func(b *testing.B) {
	return func(b *testing.B) {
		var p backoff.Policy = backoff.Exponential(first, 2, limit).Full()
		b.ReportAllocs()
		var s backoff.State
		for b.Loop() {
			var ok bool
			if wait, s, ok = p.Next(s, src); !ok || s.N >= steps {
				s = backoff.State{}
			}
		}
	}
}

func nextCenkalti(b *testing.B) {
	p := cenkalti.NewExponentialBackOff()
	p.InitialInterval, p.MaxInterval, p.Multiplier = first, limit, 2
	p.Reset()
	var all cenkalti.BackOff = p // Retry of the library calls it through this interface
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n == steps {
			n = 0
			all.Reset()
		}
		wait = all.NextBackOff()
	}
}

func nextJpillora(b *testing.B) {
	p := &jpillora.Backoff{Min: first, Max: limit, Factor: 2, Jitter: true}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n == steps {
			n = 0
			p.Reset()
		}
		wait = p.Duration()
	}
}

func nextAvast(b *testing.B) {
	r := avast.New(avast.Delay(first), avast.MaxDelay(limit))
	b.ReportAllocs()
	for n := uint(1); b.Loop(); n++ {
		if n > steps {
			n = 1
		}
		wait = avast.FullJitterBackoffDelay(n, nil, r)
	}
}

func nextSethvargo(b *testing.B) {
	p := sethvargo.WithFullJitter(sethvargo.WithCappedDuration(limit,
		sethvargo.NewExponential(first)))
	b.ReportAllocs()
	for b.Loop() {
		wait, _ = p.Next()
	}
}
