package compat

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// every returns one policy of each library, with arbitrary settings.
func every(a, b int64, x, y float64, n int, compat bool) map[string]backoff.Policy {
	first, limit := time.Duration(a), time.Duration(b)
	quirky := func(p HadoopLimited) HadoopLimited {
		if compat {
			return p.Compat()
		}
		return p
	}
	return map[string]backoff.Policy{
		"akka":               Akka{first, n, compat},
		"aws":                AWS{limit, compat},
		"aws2026":            AWS2026{first, limit, n%2 == 0, compat},
		"cenkalti":           Cenkalti{first, limit, x, y, compat},
		"curator":            Curator{first, limit, n, compat},
		"curator/fixed":      CuratorFixed{first, n, n%2 == 0, compat},
		"curator/elapsed":    CuratorUntilElapsed{limit, first, compat},
		"flume":              Flume{limit, false, compat},
		"flume/penalty":      FlumePenalty{limit, compat},
		"flume/order":        FlumeOrder{limit, compat},
		"flume/runner":       FlumeRunner{first, limit, compat},
		"grpc":               GRPC{first, x, y, limit, compat},
		"hadoop/once":        HadoopTryOnce(),
		"hadoop/forever":     HadoopForever(),
		"hadoop/count":       quirky(HadoopFixedCount(n, a, JavaMilliseconds)),
		"hadoop/time":        quirky(HadoopFixedTime(b, a, JavaSeconds)),
		"hadoop/prop":        quirky(HadoopProportional(n, a, JavaNanoseconds)),
		"hadoop/exponential": quirky(HadoopExponential(n, a, JavaMicroseconds)),
		"hadoop/linear": HadoopMultipleLinearRandom(HadoopPair{n, first},
			HadoopPair{n / 2, limit}),
		"hadoop/failover": HadoopFailover{HadoopTryOnce(), n, n, a, b, compat},
		"hadoop/class": HadoopByException(nil,
			map[string]Hadoop{"IOException": quirky(HadoopFixedCount(n, a, JavaDays))}),
		"jodis":           Jodis{first, limit, limit, compat},
		"jpillora":        Jpillora{first, limit, x, compat},
		"k8s/wait":        KubernetesWait{first, x, y, n, limit, compat},
		"k8s/loop":        KubernetesWait{first, x, y, n, limit, compat}.Loop(),
		"k8s/jitter":      KubernetesJitter{first, y, compat},
		"k8s/exponential": KubernetesExponential{first, limit, compat},
		"k8s/fast_slow":   KubernetesFastSlow{first, limit, n, compat},
		"k8s/flow":        KubernetesFlow{first, limit, y, compat},
		"pekko":           Pekko{first, limit, y, compat},
		"polly":           Polly{PollyExponential, first, limit, true, n},
		"polly/linear":    Polly{PollyLinear, first, limit, true, n},
		"resilience4j":    Resilience4j{first, x, y, true, limit, true, compat},
		"sethvargo": Sethvargo{SethvargoFibonacci, first, []SethvargoWrapper{
			SethvargoJitter(limit), SethvargoJitterPercent(uint64(b)), SethvargoCapped(limit),
			SethvargoFullJitter(),
			SethvargoMaxRetries(uint64(n)),
		}, compat},
	}
}

// FuzzPolicies calls each policy, with arbitrary settings, at arbitrary states. It checks that no
// call panics, that no wait is outside Bounds and, without Compat, that no wait is negative.
func FuzzPolicies(f *testing.F) {
	for _, a := range []int64{0, 1, -1, 1e9, math.MaxInt64, math.MinInt64, 1 << 62} {
		for _, x := range []float64{0, 1, 1.5, 2, -1, .3, math.NaN(), math.Inf(1), math.Inf(-1),
			math.MaxFloat64, 1e-320, 1 + 1e-9} {
			f.Add(a, int64(30e9), x, .5, 29, uint32(a), int64(3e9), uint64(7))
			f.Add(int64(100e6), a, x, x, 62, uint32(70), a, uint64(8))
		}
	}
	f.Fuzz(func(t *testing.T, a, b int64, x, y float64, count int, n uint32, prev int64,
		seed uint64) {
		for _, compat := range []bool{false, true} {
			for name, p := range every(a, b, x, y, count, compat) {
				for _, n := range []uint32{n, n % 100} {
					s := backoff.State{N: n, Step: uint32(seed), Prev: time.Duration(prev),
						Slept: time.Duration(prev)}
					ask(t, name, p, compat, s, seed)
				}
			}
		}
	})
}

func ask(t *testing.T, name string, p backoff.Policy, compat bool, s backoff.State, seed uint64) {
	t.Helper()
	err := backoff.Validate(p)
	low, mean, high := backoff.Bounds(p, int(min(s.N, math.MaxInt32)))
	if mean < low || high < mean {
		t.Errorf("%s %+v at %d: bounds %d, %d, %d (%v)", name, p, s.N, low, mean, high, err)
	}
	d, next, ok := p.Next(s, rand.NewPCG(seed, 1))
	if !compat && (d < 0 || low < 0) {
		t.Errorf("%s %+v at %d: %d, with bounds from %d", name, p, s.N, d, low)
	}
	if !ok && (d != 0 || next != s) {
		t.Errorf("%s %+v at %d gives up with %d and %+v after %+v", name, p, s.N, d, next, s)
	}
	// k8s/flow grows each wait from the previous one, so Bounds holds only for calls of Next that
	// begin at step 0.
	if name != "k8s/flow" && ok && s.N <= math.MaxInt32-1 && (d < low || d > high) {
		t.Errorf("%s %+v at %d: %d is not in %d to %d (%v)", name, p, s.N, d, low, high, err)
	}
}

// TestBounds draws many walks of 70 steps from policies with ordinary settings. At each step, every
// wait must lie within Bounds, and the mean of the waits must agree with the mean of Bounds.
func TestBounds(t *testing.T) {
	walks := 3000
	if testing.Short() {
		walks = 300
	}
	for name, p := range every(int64(100*time.Millisecond), int64(10*time.Second), 2, .2, 29,
		false) {
		src := rand.NewPCG(3, 4)
		states := make([]backoff.State, walks)
		for n := range 70 {
			low, mean, high := backoff.Bounds(p, n)
			sum, squares, count := 0.0, 0.0, 0.0
			for i := range states {
				d, next, ok := p.Next(states[i], src)
				if !ok {
					break
				}
				if states[i] = next; d < low || d > high {
					t.Fatalf("%s at %d: %v is not in %v to %v", name, n, d, low, high)
				}
				sum, squares, count = sum+float64(d), squares+float64(d)*float64(d), count+1
			}
			// The means of these three are incomplete, as their doc comments say.
			if int(count) < walks || name == "jodis" || name == "k8s/flow" || name == "polly" {
				continue
			}
			sd := math.Sqrt(max(squares/count-sum/count*sum/count, 0))
			if off := 6.5*sd/math.Sqrt(count) +
				float64(mean)*0.01 + 1; math.Abs(sum/count-float64(mean)) > off {
				t.Errorf("%s at %d: mean %.0f, Bounds says %d within %.0f", name, n, sum/count,
					mean, off)
			}
		}
	}
}

func TestCounterIsSafe(t *testing.T) {
	c := &Counter{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 100 {
				c.Duration()
			}
		})
	}
	group.Wait()
	if got := c.Attempt(); got != 400 {
		t.Errorf("%v attempts were counted, want 400", got)
	}
}

func TestItemsAreBounded(t *testing.T) {
	l := KubernetesItems[int]{Policy: KubernetesExponential{Base: time.Second, Max: time.Minute},
		MaxItems: 2}
	for range 3 {
		for item := range 5 {
			l.When(item)
		}
	}
	for item, want := range []int{3, 3, 0, 0, 0} {
		if got := l.NumRequeues(item); got != want {
			t.Errorf("item %d: %d failures remembered, want %d", item, got, want)
		}
	}
	if d := (&KubernetesItems[int]{}).When(1); d != 0 {
		t.Errorf("without a policy: %v, want 0", d)
	}
}

func TestHadoopMultiple(t *testing.T) {
	fail, retry := HadoopDecision{Reason: "no"}, HadoopDecision{Action: HadoopRetry, Delay: 2}
	over := HadoopDecision{Action: HadoopFailOver, Delay: 1}
	for _, c := range []struct {
		in   []HadoopDecision
		want HadoopDecision
	}{
		{[]HadoopDecision{fail, fail}, fail},
		{[]HadoopDecision{fail, retry}, retry},
		{[]HadoopDecision{retry, over, fail}, HadoopDecision{Action: HadoopFailOver, Delay: 2}},
		{nil, HadoopDecision{}},
	} {
		if got := HadoopMultiple(c.in...); got != c.want {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for name, p := range every(int64(100*time.Millisecond), int64(10*time.Second), 2, .2, 29,
		false) {
		b.Run(name, func(b *testing.B) {
			src := rand.NewPCG(1, 2)
			b.ReportAllocs()
			var s backoff.State
			for b.Loop() {
				_, next, ok := p.Next(s, src)
				if s = next; !ok || s.N >= 20 {
					s = backoff.State{}
				}
			}
		})
	}
}
