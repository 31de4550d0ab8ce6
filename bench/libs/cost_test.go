package libs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sony/gobreaker/v2"
	xrate "golang.org/x/time/rate"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/rate"
)

var errRefused = errors.New("refused")

// call is one call of a library. The first of a list is ours.
type call struct {
	lib   string
	once  func() error
	aside bool // shown, but not compared with: it does less
}

const (
	// interleaved and short, so that the best one is undisturbed on a busy machine, too
	rounds   = 60
	mostTime = 1 // of the fastest peer's
)

// TestCost prints the time and the allocations of one call that a limiter, breaker or rate limiter
// admits. It uses the best round of each library. Ours should allocate nothing, and should take no
// longer than the fastest other library.
func TestCost(t *testing.T) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer out.Flush()
	for _, v := range []struct {
		name  string
		calls []call
	}{
		{"limit, not full", limits(t)},
		{"breaker, closed", breakers(t)},
		{"rate, allowed at once", rates(t)},
	} {
		times, allocations := make([]float64, len(v.calls)), make([]int64, len(v.calls))
		for round := range rounds {
			for i := range v.calls {
				i := (round + i) % len(v.calls)
				r := measure(t, v.calls[i])
				if ns := float64(r.T.Nanoseconds()) / float64(r.N); round == 0 || ns < times[i] {
					times[i] = ns
				}
				allocations[i] = r.AllocsPerOp()
			}
		}
		fmt.Fprintf(out, "%s\tns\tallocations\t\n", v.name)
		fastest := 1
		for i, c := range v.calls {
			fmt.Fprintf(out, "%s\t%.1f\t%d\t\n", c.lib, times[i], allocations[i])
			if i > 0 && !c.aside && times[i] < times[fastest] {
				fastest = i
			}
		}
		fmt.Fprintf(out, "\t\t\t\n")
		ratio := times[0] / times[fastest]
		verdict(t, ratio <= mostTime &&
			allocations[0] == 0, "%s: %.2f of the time of %s (at most %d), %d allocations (0)",
			v.name, ratio, v.calls[fastest].lib, mostTime, allocations[0])
	}
}

func measure(t *testing.T, c call) testing.BenchmarkResult {
	var failed error
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.once(); err != nil {
				failed = err
			}
		}
	})
	if failed != nil || r.N == 0 {
		t.Fatalf("%s: %d calls, %v", c.lib, r.N, failed)
	}
	return r
}

func limits(t *testing.T) []call {
	l, err := limit.New(limit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	calls := []call{{"limit", func() error {
		p, err := l.Acquire(ctx)
		p.Done(limit.Success)
		return err
	}, false}}
	for _, l := range libraries() {
		if l.ours { // the closures that TestServers needs cost time
			continue
		}
		acquire, err := l.make()
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call{l.name, func() error {
			done, err := acquire(ctx)
			if err == nil {
				done()
			}
			return err
		}, false})
	}
	return calls
}

func breakers(t *testing.T) []call {
	ctx := t.Context()
	ours, err := breaker.New(breaker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	work := func(context.Context) error { return nil }
	sony := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{Interval: 10 * time.Second})
	value := func() (any, error) { return nil, nil }
	fails := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 20,
		10*time.Second).Build()
	return []call{
		{"breaker", func() error { return ours.Do(ctx, work) }, false},
		{"gobreaker", func() error { _, err := sony.Execute(value); return err }, false},
		{"failsafe-go", func() error {
			if !fails.TryAcquirePermit() {
				return circuitbreaker.ErrOpen
			}
			fails.RecordSuccess()
			return nil
		}, false},
	}
}

func rates(t *testing.T) []call {
	const events = 1e9
	ours, err := rate.New(rate.Options{Events: events, Burst: events})
	if err != nil {
		t.Fatal(err)
	}
	standard := xrate.NewLimiter(events, events)
	fails := ratelimiter.NewBursty[any](1<<40, time.Second)
	allowed := func(allow func() bool) func() error {
		return func() error {
			if !allow() {
				return errRefused
			}
			return nil
		}
	}
	return []call{
		{"rate", allowed(ours.Allow), false},
		{"x/time/rate", allowed(standard.Allow), false},
		// counts per fixed period: no token bucket
		{"failsafe-go bursty", allowed(fails.TryAcquirePermit), true},
	}
}
