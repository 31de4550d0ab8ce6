package compat

import (
	v1 "math/rand"
	"testing"
	"time"

	"github.com/penstock-io/penstock/internal/vectors"
)

var jpilloraVectors = handlers{
	"jpillora": func(t *testing.T, c vectors.Case) {
		p := Jpillora{
			Min: c.Params.Duration(t, "min_ns"), Max: c.Params.Duration(t, "max_ns"),
			Factor: c.Params.Float(t, "factor"), Jitter: c.Params.Bool(t, "jitter"),
		}
		counter := &Counter{Min: p.Min, Max: p.Max, Factor: p.Factor, Jitter: p.Jitter}
		if c.Kind == "calls" {
			checkCounter(t, c, counter)
			return
		}
		s := vectors.Policy(p, at)
		next := s.At
		s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
			if n < 0 {
				return p.ForAttempt(float64(n), uniform(src)), true
			}
			return next(n, src)
		}
		for _, point := range c.Points {
			if d := counter.ForAttempt(float64(point.N)); d != point.Delay.Duration() {
				t.Errorf("n = %v: %d ns, want %d ns", point.N, d, point.Delay)
			}
		}
		c.Points = nil
		vectors.Check(t, c, s)
	},
	"jpillora.seeded": func(t *testing.T, c vectors.Case) {
		seed := c.Params.Int(t, "seed")
		checkCounter(t, c, &Counter{
			Min: c.Params.Duration(t, "min_ns"), Max: c.Params.Duration(t, "max_ns"),
			Factor: c.Params.Float(t, "factor"),
			Jitter: c.Params.Bool(t, "jitter"), Rand: v1.New(v1.NewSource(int64(seed))),
		})
	},
}

func checkCounter(t *testing.T, c vectors.Case, first *Counter) {
	t.Helper()
	objects := map[string]*Counter{}
	for i, call := range c.Calls {
		b := objects[call.On]
		if b == nil {
			if len(objects) > 0 {
				t.Fatalf("call %d: no object %q", i, call.On)
			}
			b = first
			objects[call.On] = b
		}
		switch call.Call {
		case "Duration":
			checkCall(t, i, call, b.Duration())
		case "ForAttempt":
			checkCall(t, i, call, b.ForAttempt(call.Args.Float(t, "n")))
		case "Attempt":
			if got, want := b.Attempt(), call.Number(t); got != want {
				t.Errorf("call %d, Attempt: %v, want %v", i, got, want)
			}
		case "Reset":
			b.Reset()
		case "Copy":
			objects[call.Text(t)] = b.Copy()
		case "set":
			setCounter(t, call.Args, b)
		default:
			unknown(t, "call", call.Call)
		}
	}
}

func setCounter(t *testing.T, o vectors.Object, b *Counter) {
	t.Helper()
	for _, key := range o.Keys() {
		switch key {
		case "min_ns":
			b.Min = o.Duration(t, key)
		case "max_ns":
			b.Max = o.Duration(t, key)
		case "factor":
			b.Factor = o.Float(t, key)
		case "jitter":
			b.Jitter = o.Bool(t, key)
		default:
			unknown(t, "field", key)
		}
	}
}

func checkCall(t *testing.T, i int, call vectors.Call, got time.Duration) {
	t.Helper()
	if call.ResultNs == nil {
		t.Fatalf("call %d, %s: no result_ns", i, call.Call)
	}
	if want := call.ResultNs.Duration(); got != want {
		t.Errorf("call %d, %s: %d ns, want %d ns", i, call.Call, got, want)
	}
}

var curatorVectors = handlers{
	"curator.exponential": curatorSleep,
	"curator.bounded":     curatorSleep,
	"curator.n_times": curatorFixed(func(t *testing.T, p vectors.Object) CuratorFixed {
		return CuratorFixed{Sleep: p.Duration(t, "sleep_ns"), MaxRetries: p.Int(t, "max_retries"),
			Compat: true}
	}),
	"curator.one_time": curatorFixed(func(t *testing.T, p vectors.Object) CuratorFixed {
		return CuratorFixed{Sleep: p.Duration(t, "sleep_ns"), MaxRetries: 1, Compat: true}
	}),
	"curator.forever": curatorFixed(func(t *testing.T, p vectors.Object) CuratorFixed {
		return CuratorFixed{Sleep: p.Duration(t, "sleep_ns"), Forever: true, Compat: true}
	}),
	"curator.until_elapsed": func(t *testing.T, c vectors.Case) {
		p := CuratorUntilElapsed{
			MaxElapsed: c.Params.Duration(t, "max_elapsed_ns"),
			Sleep:      c.Params.Duration(t, "sleep_ns"), Compat: true,
		}
		for _, d := range c.Decisions {
			retry, slept, sleeps := p.Decide(d.Input.Int(t, "n"), d.Input.Duration(t, "elapsed_ns"))
			if want := d.Output.Text(t, "action") == "retry"; retry != want ||
				sleeps != d.Output.Int(t, "sleeps") ||
				slept != d.Output.Duration(t, "delay_ns") {
				t.Errorf("%s: %v, %v, %d; want %s", d.Input, retry, slept, sleeps, d.Output)
			}
		}
	},
	"curator.exponential_limit": func(t *testing.T, c vectors.Case) {
		for _, d := range c.Decisions {
			p := Curator{Base: c.Params.Duration(t, "base_ns"),
				MaxRetries: d.Input.Int(t, "max_retries"), Compat: true}
			granted := 0
			for s := at(0); ; granted++ {
				_, next, ok := p.Next(s, nil)
				if !ok {
					break
				}
				s = next
			}
			if want := d.Output.Int(t, "retries_granted"); granted != want || p.Retries() != want {
				t.Errorf("%s: %d retries granted, want %d", d.Input, granted, want)
			}
		}
	},
	"curator.retryable": func(t *testing.T, c vectors.Case) {
		for _, d := range c.Decisions {
			code := d.Input.Text(t, "keeper_exception")
			plain, err := CuratorRetryable(code, false)
			session, _ := CuratorRetryable(code, true)
			if d.Output.Has("error") {
				if want := "java.lang.IllegalArgumentException: "; err == nil ||
					want+err.Error() != d.Output.Text(t, "error") {
					t.Errorf("%s: error %v, want %s", code, err, d.Output)
				}
			} else if err != nil || plain != d.Output.Bool(t, "n_times") ||
				session != d.Output.Bool(t, "session_failed") {
				t.Errorf("%s: %v, %v, %v; want %s", code, plain, session, err, d.Output)
			}
		}
	},
}

func curatorFixed(read func(t *testing.T, p vectors.Object) CuratorFixed) func(*testing.T,
	vectors.Case) {
	return func(t *testing.T, c vectors.Case) {
		p := read(t, c.Params)
		s := vectors.Policy(p, at)
		s.At = func(n int, _ vectors.Rand) (time.Duration, bool) { return p.Decide(n) }
		vectors.Check(t, c, s)
	}
}

// curatorSleep checks the waits of getSleepTimeMs, which has no limit of retries.
func curatorSleep(t *testing.T, c vectors.Case) {
	p := Curator{
		Base:       c.Params.Duration(t, "base_ns"),
		MaxSleep:   durationOr(t, c.Params, "max_sleep_ns", CuratorMaxSleep),
		MaxRetries: c.Params.Int(t, "max_retries"), Compat: true,
	}
	s := vectors.Policy(p, at)
	s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
		d, err := p.Sleep(n, src)
		return d, err == nil && (c.Ends != "stop" || n < p.Retries())
	}
	vectors.Check(t, c, s)
}

var sethvargoVectors = func() handlers {
	check := func(shape SethvargoShape) func(*testing.T, vectors.Case) {
		return func(t *testing.T, c vectors.Case) {
			p := Sethvargo{Shape: shape, Base: c.Params.Duration(t, "base_ns"), Compat: true}
			timed := false
			for _, o := range c.Params.Objects(t, "wrappers") {
				var w SethvargoWrapper
				switch kind := o.Text(t, "type"); kind {
				case "jitter":
					w = SethvargoJitter(o.Duration(t, "jitter_ns"))
				case "jitter_percent":
					w = SethvargoJitterPercent(vectors.Get[uint64](t, o, "percent"))
				case "full_jitter":
					w = SethvargoFullJitter()
				case "capped":
					w = SethvargoCapped(o.Duration(t, "cap_ns"))
				case "max_retries":
					w = SethvargoMaxRetries(vectors.Get[uint64](t, o, "max"))
				case "max_duration":
					w, timed = SethvargoMaxDuration(o.Duration(t, "max_ns")), true
				default:
					unknown(t, "wrapper", kind)
				}
				if keys := o.Unread(); len(keys) > 0 {
					unknown(t, "fields of a wrapper", keys)
				}
				p.Wrappers = append(p.Wrappers, w)
			}
			s := vectors.Policy(p, at)
			if timed { // its wait depends on the earlier waits
				s.At = walked(s)
			}
			vectors.Check(t, c, s)
		}
	}
	return handlers{
		"sethvargo.constant":    check(SethvargoConstant),
		"sethvargo.exponential": check(SethvargoExponential),
		"sethvargo.fibonacci":   check(SethvargoFibonacci),
	}
}()

// walked returns a function that computes the wait of a step by walking up to it.
func walked(s vectors.Subject) func(n int, src vectors.Rand) (time.Duration, bool) {
	return func(n int, src vectors.Rand) (d time.Duration, ok bool) {
		next := s.Walk(src)
		for range n + 1 {
			if d, ok = next(); !ok {
				return 0, false
			}
		}
		return d, ok
	}
}
