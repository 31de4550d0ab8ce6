package compat

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/vectors"
)

// scripted compares delays that depend on earlier events. next returns the wait of turn i.
func scripted(t *testing.T, c vectors.Case, next func(i int, src vectors.Rand) time.Duration) {
	t.Helper()
	src := vectors.Source(c, 0)
	for i, want := range c.Delays {
		if d := next(i, src); d != want.Duration() {
			t.Errorf("turn %d: %d ns, want %d ns", i, d, want)
		}
	}
}

var flumeVectors = handlers{
	"flume.spool": func(t *testing.T, c vectors.Case) {
		p := Flume{Max: durationOr(t, c.Params, "max_backoff_ns", FlumeDefaults().Max),
			Off: !c.Params.Bool(t, "backoff"), Compat: true}
		outcomes := vectors.Get[[]string](t, c.Params, "outcomes")
		var s backoff.State
		scripted(t, c, func(i int, src vectors.Rand) (d time.Duration) {
			switch outcomes[i] {
			case "ok":
				s = backoff.State{}
			case "full", "channel_exception":
				d, s, _ = p.Next(s, src)
			default:
				unknown(t, "outcome", outcomes[i])
			}
			return d
		})
	},
	"flume.failover_sink": func(t *testing.T, c vectors.Case) {
		p := FlumePenalty{
			Max:    durationOr(t, c.Params, "max_penalty_ns", FlumePenaltyDefaults().Max),
			Compat: true,
		}
		s := vectors.Policy(p, at)
		s.At = func(n int, _ vectors.Rand) (time.Duration, bool) {
			return p.Penalty(n + c.ArgOffset), true
		}
		vectors.Check(t, c, s)
	},
	"flume.order_selector": func(t *testing.T, c vectors.Case) {
		p := FlumeOrder{
			Max: durationOr(t, c.Params, "max_timeout_ns", FlumeOrderDefaults().Max), Compat: true,
		}
		gaps := c.Params.Durations(t, "gaps_ns")
		var s backoff.State
		scripted(t, c, func(i int, _ vectors.Rand) (d time.Duration) {
			d, s = p.Failed(s, gaps[i])
			return d
		})
	},
	"flume.source_runner": flumeRunner,
	"flume.sink_runner":   flumeRunner,
}

func flumeRunner(t *testing.T, c vectors.Case) {
	p := FlumeRunner{
		Increment: durationOr(t, c.Params, "increment_ns", FlumeRunnerDefaults().Increment),
		Max:       durationOr(t, c.Params, "max_ns", FlumeRunnerDefaults().Max),
		Sink:      c.Policy == "flume.sink_runner",
	}
	names := map[string]FlumeOutcome{
		"ok": FlumeReady, "backoff": FlumeBackoff,
		"event_delivery_exception": FlumeDeliveryException,
		"runtime_exception":        FlumeException,
	}
	outcomes := vectors.Get[[]string](t, c.Params, "outcomes")
	var s backoff.State
	scripted(t, c, func(i int, _ vectors.Rand) (d time.Duration) {
		o, ok := names[outcomes[i]]
		if !ok {
			unknown(t, "outcome", outcomes[i])
		}
		d, s = p.Turn(s, o)
		return d
	})
}

var kubernetesVectors = handlers{
	"k8s.wait": policy(kubernetesWait),
	"k8s.wait.loop": func(t *testing.T, c vectors.Case) {
		p := kubernetesWait(t, c.Params).Loop()
		vectors.Check(t, c, vectors.Policy(p, at))
		if _, text, ok := strings.Cut(c.EndsHow, "; waited "); ok &&
			text != itoa(p.Wasted())+" ns after the last" {
			t.Errorf("wasted %d ns, want %s", p.Wasted(), text)
		}
	},
	"k8s.jitter": policy(func(t *testing.T, p vectors.Object) KubernetesJitter {
		return KubernetesJitter{Duration: p.Duration(t, "duration_ns"),
			MaxFactor: p.Float(t, "max_factor"), Compat: true}
	}),
	"k8s.workqueue": func(t *testing.T, c vectors.Case) {
		p := KubernetesExponential{Base: c.Params.Duration(t, "base_ns"),
			Max: c.Params.Duration(t, "max_ns"), Compat: true}
		if c.Kind == "calls" {
			checkItems(t, c, &KubernetesItems[string]{Policy: p})
			return
		}
		vectors.Check(t, c, vectors.Policy(p, at))
	},
	"k8s.fast_slow": func(t *testing.T, c vectors.Case) {
		p := KubernetesFastSlow{
			Fast: c.Params.Duration(t, "fast_ns"), Slow: c.Params.Duration(t, "slow_ns"),
			MaxFast: c.Params.Int(t, "max_fast"),
			Compat:  true,
		}
		if c.Kind == "calls" {
			checkItems(t, c, &KubernetesItems[string]{Policy: p})
			return
		}
		vectors.Check(t, c, vectors.Policy(p, at))
	},
	"k8s.flowcontrol": func(t *testing.T, c vectors.Case) {
		p := KubernetesFlow{
			Initial: c.Params.Duration(t, "initial_ns"), Max: c.Params.Duration(t, "max_ns"),
			Jitter: c.Params.Float(t, "jitter"),
			Compat: true,
		}
		gaps := c.Params.Durations(t, "gaps_ns")
		s := vectors.Subject{Walk: func(src vectors.Rand) func() (time.Duration, bool) {
			var s backoff.State
			i := 0
			return func() (d time.Duration, ok bool) {
				if i < len(gaps) {
					d, s = p.Failed(s, gaps[i], src)
				}
				i++
				return d, true
			}
		}}
		s.At = walked(s)
		vectors.Check(t, c, s)
	},
}

func itoa(d time.Duration) string { return big.NewInt(int64(d)).String() }

func kubernetesWait(t *testing.T, p vectors.Object) KubernetesWait {
	return KubernetesWait{
		Duration: p.Duration(t, "duration_ns"), Factor: p.Float(t, "factor"),
		Jitter: p.Float(t, "jitter"),
		Steps:  p.Int(t, "steps"), Cap: p.Duration(t, "cap_ns"), Compat: true,
	}
}

func checkItems(t *testing.T, c vectors.Case, l *KubernetesItems[string]) {
	t.Helper()
	for i, call := range c.Calls {
		item := call.Args.Text(t, "item")
		switch call.Call {
		case "When":
			checkCall(t, i, call, l.When(item))
		case "Forget":
			l.Forget(item)
		case "NumRequeues":
			if got, want := float64(l.NumRequeues(item)), call.Number(t); got != want {
				t.Errorf("call %d, NumRequeues(%s): %v, want %v", i, item, got, want)
			}
		default:
			unknown(t, "call", call.Call)
		}
	}
}

var hadoopVectors = func() handlers {
	all := handlers{}
	for _, name := range []string{
		"try_once", "retry_forever", "fixed_count", "fixed_forever", "fixed_time", "proportional",
		"exponential",
		"multiple_linear_random", "failover", "by_exception", "by_remote_exception",
		"other_than_remote_and_sasl",
	} {
		all["hadoop."+name] = checkHadoop
	}
	all["hadoop.multiple_linear_random_parse"] = checkHadoopParser
	return all
}()

func checkHadoop(t *testing.T, c vectors.Case) {
	if c.Kind == "decision" {
		for _, d := range c.Decisions {
			checkHadoopDecision(t, c, d)
		}
		return
	}
	p := hadoop(t, c.Policy, c.Params, vectors.Object{})
	s := vectors.Policy(p, at)
	if s.Err == nil {
		// MaxFailovers limits failovers only.
		s.At = func(n int, src vectors.Rand) (time.Duration, bool) {
			f := HadoopFailure{Err: JavaError{Class: "ConnectException"}, Retries: n, Failovers: n,
				Idempotent: true}
			if c.Policy != "hadoop.failover" {
				f.Err.Class, f.Failovers = "IOException", 0
			}
			d := p.Decide(f, src)
			return d.Delay, d.Action != HadoopFail
		}
	}
	vectors.Check(t, c, s)
	if text, ok := strings.CutPrefix(c.EndsHow, "FAIL: "); ok && len(c.Steps) == 0 {
		f := HadoopFailure{Err: JavaError{Class: "IOException"}, Retries: c.FirstN + len(c.Delays),
			Idempotent: true}
		if d := p.Decide(f, nil); d.Action != HadoopFail || d.Reason != text {
			t.Errorf("at the end: %v, %q; want fail, %q", d.Action, d.Reason, text)
		}
	}
}

func checkHadoopDecision(t *testing.T, c vectors.Case, d vectors.Decision) {
	t.Helper()
	p := hadoop(t, c.Policy, c.Params, d.Input)
	f := HadoopFailure{
		Err: ParseJavaError(d.Input.Text(t, "error")), Retries: d.Input.Int(t, "retries"),
		Failovers:  d.Input.Int(t, "failovers"),
		Idempotent: d.Input.Bool(t, "idempotent_or_at_most_once"),
	}
	got := p.Decide(f, vectors.Source(c, 0))
	if want := d.Output.Text(t, "action"); got.Action.String() != want ||
		got.Reason != d.Output.Text(t, "reason") {
		t.Errorf("%s: %v, %q; want %s", d.Input, got.Action, got.Reason, d.Output)
		return
	}
	checkDelay(t, d, func(src vectors.Rand) (time.Duration, bool) {
		got := p.Decide(f, src)
		return got.Delay, got.Action != HadoopFail
	}, got.Action != HadoopFail)
	if keys := d.Input.Unread(); len(keys) > 0 {
		unknown(t, "inputs", keys)
	}
}

// hadoop returns the policy with the given name and the settings p. Each decision of a test case
// has an input, which may contain settings, too, such as max_retries. The settings in the parameter
// input take precedence over p.
func hadoop(t *testing.T, name string, p, input vectors.Object) Hadoop {
	t.Helper()
	unit := JavaMilliseconds
	if p.Has("unit") {
		var err error
		if unit, err = ParseJavaUnit(p.Text(t, "unit")); err != nil {
			t.Fatal(err)
		}
	}
	in := func(key string) int64 { // in unit, even if the nanoseconds exceed an int64
		return new(big.Int).Quo(p.Big(t, key), big.NewInt(int64(unit))).Int64()
	}
	count := func(key string) int {
		if input.Has(key) {
			return input.Int(t, key)
		}
		return p.Int(t, key)
	}
	switch name {
	case "hadoop.try_once":
		return HadoopTryOnce()
	case "hadoop.retry_forever":
		return HadoopForever()
	case "hadoop.fixed_count":
		return HadoopFixedCount(count("max_retries"), in("sleep_ns"), unit).Compat()
	case "hadoop.fixed_forever":
		return HadoopFixedForever(in("sleep_ns"), unit).Compat()
	case "hadoop.fixed_time":
		return HadoopFixedTime(in("max_time_ns"), in("sleep_ns"), unit).Compat()
	case "hadoop.proportional":
		return HadoopProportional(count("max_retries"), in("sleep_ns"), unit).Compat()
	case "hadoop.exponential":
		return HadoopExponential(count("max_retries"), in("sleep_ns"), unit).Compat()
	case "hadoop.multiple_linear_random":
		if p := ParseHadoopMultipleLinearRandom(p.Text(t, "spec")); p != nil {
			return *p
		}
		return HadoopLinear{} // null, empty: that list given to the constructor
	case "hadoop.failover":
		return hadoopFailover(t, p, input)
	}
	fallback, policies := nested(t, p.Object(t, "default")), map[string]Hadoop{}
	for _, class := range p.Object(t, "map").Keys() {
		policies[class] = nested(t, p.Object(t, "map").Object(t, class))
	}
	switch name {
	case "hadoop.by_exception":
		return HadoopByException(fallback, policies)
	case "hadoop.by_remote_exception":
		return HadoopByRemoteException(fallback, policies)
	case "hadoop.other_than_remote_and_sasl":
		return HadoopOtherThanRemoteAndSASL(fallback, policies)
	}
	unknown(t, "policy", name)
	return nil
}

func nested(t *testing.T, p vectors.Object) Hadoop {
	t.Helper()
	return hadoop(t, p.Text(t, "policy"), p, vectors.Object{})
}

func hadoopFailover(t *testing.T, p, input vectors.Object) Hadoop {
	t.Helper()
	policy := HadoopFailover{Compat: true}
	fallback := nested(t, p.Object(t, "fallback"))
	constructor := input.Text(t, "constructor")
	switch form, number, ok := strings.Cut(strings.TrimSuffix(constructor, ")"), "("); {
	case !ok:
		policy.MaxFailovers, policy.MaxRetries, policy.Fallback = p.Int(t, "max_failovers"),
			p.Int(t, "max_retries"), fallback
		policy.DelayMillis = new(big.Int).Quo(p.Big(t, "delay_ns"), big.NewInt(1e6)).Int64()
		policy.MaxDelayMillis = new(big.Int).Quo(p.Big(t, "max_delay_ns"), big.NewInt(1e6)).Int64()
		return policy
	case form != "failoverOnNetworkException":
		unknown(t, "constructor", constructor)
	case strings.HasPrefix(number, "fallback, "):
		policy.Fallback, number = fallback, strings.TrimPrefix(number, "fallback, ")
		fallthrough
	default:
		n, ok := new(big.Int).SetString(number, 10)
		if !ok {
			unknown(t, "constructor", constructor)
		}
		policy.MaxFailovers = int(n.Int64())
	}
	return policy
}

func checkHadoopParser(t *testing.T, c vectors.Case) {
	for _, d := range c.Decisions {
		spec := d.Input.Text(t, "spec")
		p := ParseHadoopMultipleLinearRandom(spec)
		if !d.Output.Has("pairs") {
			if p != nil {
				t.Errorf("%q: %v, want null", spec, p)
			}
			continue
		}
		if p == nil || p.String() != d.Output.Text(t, "text") {
			t.Errorf("%q: %v, want %s", spec, p, d.Output)
			continue
		}
		for i, pair := range d.Output.Objects(t, "pairs") {
			want := HadoopPair{pair.Int(t, "retries"), pair.Duration(t, "sleep_ns")}
			if got := p.Pairs(); i >= len(got) || got[i] != want {
				t.Errorf("%q: pairs %v, want %+v at %d", spec, got, want, i)
			}
		}
	}
}
