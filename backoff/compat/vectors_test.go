package compat

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/vectors"
)

func at(n int) backoff.State { return backoff.State{N: uint32(n)} }

// handlers maps each policy to the function that checks its cases. Each vectors_*_test.go file has
// its own handlers.
type handlers = map[string]func(*testing.T, vectors.Case)

func TestVectors(t *testing.T) {
	all := handlers{}
	for _, some := range []handlers{
		awsVectors, cenkaltiVectors, curatorVectors, flumeVectors, grpcVectors, hadoopVectors,
		akkaVectors, jodisVectors,
		jpilloraVectors, kubernetesVectors, pekkoVectors, resilience4jVectors, sethvargoVectors,
	} {
		maps.Copy(all, some)
	}
	vectors.Run(t, vectors.Compat, all)
}

// policy returns the handler of a policy that is only a backoff.Policy.
func policy[P backoff.Policy](read func(t *testing.T, p vectors.Object) P) func(*testing.T,
	vectors.Case) {
	return func(t *testing.T, c vectors.Case) {
		vectors.Check(t, c, vectors.Policy(read(t, c.Params), at))
	}
}

var cenkaltiVectors = handlers{"cenkalti": policy(func(t *testing.T, p vectors.Object) Cenkalti {
	return Cenkalti{
		Initial: p.Duration(t, "initial_ns"), Max: p.Duration(t, "max_ns"),
		Multiplier: p.Float(t, "multiplier"), Randomization: p.Float(t, "randomization"),
		Compat: true,
	}
})}

var pekkoVectors = handlers{"pekko": func(t *testing.T, c vectors.Case) {
	p := Pekko{
		Min: c.Params.Duration(t, "min_ns"), Max: c.Params.Duration(t, "max_ns"),
		RandomFactor: c.Params.Float(t, "random_factor"), Compat: true,
	}
	s := vectors.Policy(p, at)
	if s.Err != nil { // the supervisor refuses these settings, calculateDelay takes them
		s.Err, s.Walk, s.Bounds = nil, nil, nil
	}
	s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
		return p.Delay(n, uniform(src)), true
	}
	vectors.Check(t, c, s)
}}

var grpcVectors = handlers{"grpc.connection": func(t *testing.T, c vectors.Case) {
	p := GRPC{
		Base: c.Params.Duration(t, "base_ns"), Multiplier: c.Params.Float(t, "multiplier"),
		Jitter: c.Params.Float(t, "jitter"), Max: c.Params.Duration(t, "max_ns"), Compat: true,
	}
	s := vectors.Policy(p, at)
	s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
		return p.Delay(n, uniform(src)), true
	}
	vectors.Check(t, c, s)
}}

var awsVectors = handlers{
	"aws.legacy": func(t *testing.T, c vectors.Case) {
		p := AWS{Max: durationOr(t, c.Params, "max_ns", AWSDefaults().Max), Compat: true}
		s := vectors.Policy(p, at)
		s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
			return p.Delay(n+c.ArgOffset, uniform(src)), true
		}
		vectors.Check(t, c, s)
	},
	"aws.2026": func(t *testing.T, c vectors.Case) {
		p := AWS2026{
			Base:      c.Params.Duration(t, "base_ns"),
			Max:       durationOr(t, c.Params, "max_ns", AWS2026Defaults().Max),
			Throttled: c.Params.Bool(t, "throttled"), Compat: true,
		}
		s := vectors.Policy(p, at)
		s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
			return p.Delay(n, uniform(src)), true
		}
		vectors.Check(t, c, s)
	},
}

var resilience4jVectors = func() handlers {
	check := func(random bool, initial string) func(*testing.T, vectors.Case) {
		return func(t *testing.T, c vectors.Case) {
			p := Resilience4j{
				Initial: c.Params.Duration(t, initial), Multiplier: 1, Random: random,
				Randomization: c.Params.Float(t, "randomization"),
				Capped:        c.Params.Has("max_ns"), Max: c.Params.Duration(t, "max_ns"),
				Compat: true,
			}
			if c.Params.Has("multiplier") {
				p.Multiplier = c.Params.Float(t, "multiplier")
			}
			s := vectors.Policy(p, at)
			s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
				d, err := p.Delay(n+c.ArgOffset, uniform(src))
				return d, err == nil
			}
			if c.FirstN < 0 {
				_, s.Err = p.Delay(c.FirstN+c.ArgOffset, 0)
			}
			vectors.Check(t, c, s)
		}
	}
	return handlers{
		"resilience4j.exponential":        check(false, "initial_ns"),
		"resilience4j.fixed":              check(false, "interval_ns"),
		"resilience4j.exponential_random": check(true, "initial_ns"),
		"resilience4j.randomized":         check(true, "interval_ns"),
	}
}()

var akkaVectors = handlers{"akka": func(t *testing.T, c vectors.Case) {
	p := Akka{
		Slot: c.Params.Duration(t, "slot_ns"), Ceiling: c.Params.Int(t, "ceiling"),
		StayAtCeiling: c.Params.Bool(t, "stay_at_ceiling"),
	}
	vectors.Check(t, c, vectors.Policy(p, at))
	for _, step := range c.Steps {
		if len(step.State.Keys()) == 0 {
			continue
		}
		want := AkkaState{
			Retries:      uint64(step.State.Int(t, "retries")),
			TotalRetries: uint64(step.State.Int(t, "total_retries")),
			Resets:       uint64(step.State.Int(t, "resets")),
			Started:      step.State.Bool(t, "started"),
		}
		if got := p.Counters(uint32(step.N)); got != want {
			t.Errorf("n = %d: counters %+v, want %+v", step.N, got, want)
		}
	}
}}

var jodisVectors = handlers{"jodis": func(t *testing.T, c vectors.Case) {
	p := Jodis{
		Base: c.Params.Duration(t, "base_ns"), MaxSleep: c.Params.Duration(t, "max_sleep_ns"),
		MaxElapsed: c.Params.Duration(t, "max_elapsed_ns"), Compat: true,
	}
	if c.Kind != "decision" {
		s := vectors.Policy(p, at)
		s.At = func(n int, src vectors.Rand) (time.Duration, bool) { return p.Decide(n, 0, src) }
		vectors.Check(t, c, s)
		return
	}
	for _, d := range c.Decisions {
		n, elapsed := d.Input.Int(t, "n"), d.Input.Duration(t, "elapsed_ns")
		want := d.Output.Text(t, "action") == "retry"
		checkDelay(t, d, func(src vectors.Rand) (time.Duration, bool) {
			return p.Decide(n, elapsed, src)
		}, want)
		if sleeps := d.Output.Int(t, "sleeps"); (sleeps == 1) != want {
			t.Errorf("%s: %d sleeps with a retry %v", d.Input, sleeps, want)
		}
	}
}}

// checkDelay compares the delay of a decision with that of the library. The extremes of a random
// delay, over 3000 draws, must equal those of the library. If the library's extremes are measured
// from a sample, they need only be close (see sameExtremes).
func checkDelay(t *testing.T, d vectors.Decision,
	decide func(src vectors.Rand) (time.Duration, bool), want bool) {
	t.Helper()
	src := vectors.Source(vectors.Case{Name: d.Input.String()}, 0)
	draws := make([]time.Duration, 3000)
	for i := range draws {
		delay, retry := decide(src)
		if retry != want {
			t.Errorf("%s: goes on %v, want %v", d.Input, retry, want)
			return
		}
		draws[i] = delay
	}
	lowest, highest := d.Output.Duration(t, "delay_ns"), d.Output.Duration(t, "delay_ns")
	random := d.Output.Has("min_ns")
	if random {
		lowest, highest = d.Output.Duration(t, "min_ns"), d.Output.Duration(t, "max_ns")
	}
	if !want && !random {
		return
	}
	if low, high := slices.Min(draws), slices.Max(draws); low == lowest && high == highest {
		return
	}
	if !random || d.Output.Int(t, "samples") == 0 ||
		!sameExtremes(draws, lowest, highest, decide) {
		t.Errorf("%s: delays %d to %d ns, want %d to %d", d.Input, slices.Min(draws),
			slices.Max(draws), lowest, highest)
	}
}

// sameExtremes reports whether draws may come from the same distribution as a sample of the library
// that has the given extremes. It reports false for the same distribution about once in 10^9 cases.
func sameExtremes(draws []time.Duration, lowest, highest time.Duration,
	decide func(src vectors.Rand) (time.Duration, bool)) bool {
	// The extremes of two samples of n continuous draws differ by less than 30/n of the range.
	low, high := slices.Min(draws), slices.Max(draws)
	slack := (float64(highest)-float64(lowest))*30/float64(len(draws)) + 1
	if math.Abs(float64(low)-float64(lowest)) <= slack &&
		math.Abs(float64(high)-float64(highest)) <= slack {
		return true
	}
	// The extremes may differ by more if draws near the ends of the range are rare, for example
	// because most draws are cut to a limit. So accept up to 30 draws beyond each of the library's
	// extremes, and check that the ends of our own range include these extremes.
	below, above := 0, 0
	for _, d := range draws {
		if d < lowest {
			below++
		}
		if d > highest {
			above++
		}
	}
	first, _ := decide(fixed(0))
	last, _ := decide(fixed(math.MaxUint64))
	return below <= 30 && above <= 30 && lowest >= min(first, last) && highest <= max(first, last)
}

// durationOr reads a setting. It returns the library's default if the case omits the setting.
func durationOr(t *testing.T, p vectors.Object, key string, missing time.Duration) time.Duration {
	t.Helper()
	if !p.Has(key) {
		return missing
	}
	return p.Duration(t, key)
}

func unknown(t *testing.T, what string, value any) {
	t.Helper()
	t.Fatalf("%s %v is not known", what, value)
}
