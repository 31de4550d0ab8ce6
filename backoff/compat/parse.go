//penstock:pure

package compat

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/penstock-io/penstock/backoff"
)

// Parse reads a policy from text. It accepts the policies of package backoff, including
// combinations, as [backoff.Parse] does, and the policies of this package, which [Specs] lists.
// Most keys set the field of the same name in the policy's struct: max_sleep sets MaxSleep. A
// missing key has the default that Specs shows. A key without a default must be given. Compat is
// off, so that no wait is negative.
//
// The String method of a policy that Parse has returned gives a text from which Parse makes the
// same policy again.
func Parse(spec string) (backoff.Policy, error) { return backoff.ParseWith(spec, readers) }

// specs are the policies that Parse reads, with all keys in the order of the fields. The value of a
// required key is a sample; the other values are the defaults.
var specs = []string{
	"akka slot=10ms ceiling=10 stay_at_ceiling=false",
	"aws max=20s",
	"aws_2026 base=50ms max=20s throttled=false",
	"cenkalti initial=500ms max=1m0s multiplier=1.5 randomization=0.5",
	"curator base=100ms max_sleep=596h31m23.647s max_retries=29",
	"curator_fixed sleep=1s max_retries=1 forever=false",
	"curator_until_elapsed max_elapsed=1m0s sleep=1s",
	"flume max=4s off=false",
	"flume_failover max=30s",
	"flume_order max=30s",
	"flume_runner increment=1s max=5s sink=false",
	"grpc base=1s multiplier=1.6 jitter=0.2 max=2m0s",
	"hadoop_exponential sleep=1s max_retries=10",
	"hadoop_failover delay=500ms max_delay=15s max_failovers=15 max_retries=10",
	"hadoop_fixed_count sleep=1s max_retries=10",
	"hadoop_fixed_time max_time=1m0s sleep=1s",
	"hadoop_multiple_linear_random pairs=10000,6,60000,10",
	"hadoop_proportional sleep=1s max_retries=10",
	"jodis base=100ms max_sleep=30s max_elapsed=none",
	"jpillora min=100ms max=10s factor=2 jitter=false",
	"kubernetes_fast_slow fast=5ms slow=10s max_fast=3",
	"kubernetes_flow initial=1s max=1m0s jitter=0",
	"kubernetes_loop duration=10ms factor=0 jitter=0 steps=5 cap=none",
	"kubernetes_wait duration=10ms factor=0 jitter=0 steps=5 cap=none",
	"kubernetes_workqueue base=5ms max=16m40s",
	"pekko min=3s max=30s random_factor=0.2",
	"polly type=constant delay=2s max=none jitter=false max_retries=3",
	"resilience4j initial=500ms multiplier=1.5 randomization=0.5 random=false max=none",
	"sethvargo shape=exponential base=1s wrappers=none",
}

// Specs returns a text for each policy of this package that [Parse] reads. The text contains all
// keys of the policy. The values are the defaults. The following keys have no default and must be
// given. For them, Specs shows sample values.
//
//	required keys                   policies
//	base                            curator, sethvargo
//	max_elapsed, sleep              curator_until_elapsed
//	sleep                           curator_fixed
//	max_retries, sleep              hadoop_exponential, hadoop_fixed_count, hadoop_proportional
//	max_time, sleep                 hadoop_fixed_time
//	pairs                           hadoop_multiple_linear_random
//	fast, max_fast, slow            kubernetes_fast_slow
//	initial, max                    kubernetes_flow
//	duration, steps                 kubernetes_loop, kubernetes_wait
//	max, min                        pekko
//
// The value of "pairs" lists milliseconds and numbers of retries in turn, such as 10000,6,60000,10.
// The value of "wrappers" lists the wrappers around the backoff, innermost first, such as
// jitter:250ms,capped:30s. The other wrappers are jitter_percent:10, full_jitter, max_retries:5 and
// max_duration:1m.
func Specs() []string { return slices.Clone(specs) }

var readers = map[string]func(*backoff.Settings) backoff.Policy{
	"akka":     read(AkkaDefaults()),
	"aws":      read(AWSDefaults()),
	"aws_2026": read(AWS2026Defaults()),
	"cenkalti": read(CenkaltiDefaults()),
	"curator": read(Curator{MaxSleep: CuratorMaxSleep,
		MaxRetries: CuratorMaxRetries}),
	"curator_fixed":         read(CuratorFixed{MaxRetries: 1}),
	"curator_until_elapsed": read(CuratorUntilElapsed{}),
	"flume":                 read(FlumeDefaults()),
	"flume_failover":        read(FlumePenaltyDefaults()),
	"flume_order":           read(FlumeOrderDefaults()),
	"flume_runner":          read(FlumeRunnerDefaults()),
	"grpc":                  read(GRPCDefaults()),
	"hadoop_exponential":    readAs(hadoopText{}, hadoopText.exponential),
	"hadoop_failover": readAs(hadoopFailoverText{500 * time.Millisecond, 15 * time.Second, 15, 10},
		hadoopFailoverText.policy),
	"hadoop_fixed_count":            readAs(hadoopText{}, hadoopText.fixedCount),
	"hadoop_fixed_time":             readAs(hadoopTimeText{}, hadoopTimeText.policy),
	"hadoop_multiple_linear_random": readAs(hadoopPairsText{}, hadoopPairsText.policy),
	"hadoop_proportional":           readAs(hadoopText{}, hadoopText.proportional),
	"jodis":                         read(JodisDefaults()),
	"jpillora": read(Jpillora{100 * time.Millisecond, 10 * time.Second, 2,
		false}),
	"kubernetes_fast_slow": read(KubernetesFastSlow{}),
	"kubernetes_flow":      read(KubernetesFlow{}),
	"kubernetes_loop": readAs(KubernetesWait{}, func(p KubernetesWait) (port, error) {
		return p.Loop(), nil
	}),
	"kubernetes_wait":      read(KubernetesWait{}),
	"kubernetes_workqueue": read(KubernetesExponentialDefaults()),
	"pekko":                read(Pekko{RandomFactor: .2}),
	"polly":                read(PollyDefaults()),
	"resilience4j": readAs(resilience4jText{500 * time.Millisecond, 1.5, .5, false, math.MaxInt64},
		resilience4jText.policy),
	"sethvargo": readAs(sethvargoText{Shape: SethvargoExponential, Wrappers: none},
		sethvargoText.policy),
}

// none is the value of a key that switches a limit off.
const none = "none"

// unlimited has the fields that accept "none", each with the duration that means no limit.
var unlimited = map[string]time.Duration{
	"Jodis.MaxElapsed": -1, "KubernetesWait.Cap": 0, "Polly.Max": 0,
	"resilience4jText.Max": math.MaxInt64,
}

// port has the methods of every policy in this package.
type port interface {
	backoff.Policy
	backoff.Validator
	backoff.Bounder
}

// described is a policy with the text that it was read from.
type described struct {
	port
	text string
}

// String returns the text, from which the policy can be read back.
func (p described) String() string { return p.text }

// read makes a reader of a policy with these defaults.
func read[P port](defaults P) func(*backoff.Settings) backoff.Policy {
	return readAs(defaults, func(p P) (port, error) { return p, nil })
}

// readAs returns a function that makes a policy from the keys of a spec. The function sets the
// fields of a T from the keys of the same names, and passes the T to policyOf. A duration, int or
// string is required if it has no default.
func readAs[T any](defaults T,
	policyOf func(T) (port, error)) func(*backoff.Settings) backoff.Policy {
	return func(settings *backoff.Settings) backoff.Policy {
		values := defaults
		text := settings.Policy()
		v := reflect.ValueOf(&values).Elem()
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Name == "Compat" {
				continue
			}
			if value, given := readField(settings, v.Type().Name()+"."+field.Name, key(field.Name),
				v.Field(i)); given {
				text += " " + key(field.Name) + "=" + value
			}
		}
		p, err := policyOf(values)
		if err != nil {
			settings.Fail(err)
		}
		return described{p, text}
	}
}

// key returns the key of a field, for example max_sleep for MaxSleep.
func key(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// readField sets v from a key, and returns the value as text.
func readField(settings *backoff.Settings, field, key string,
	v reflect.Value) (text string, given bool) {
	text, given = settings.Text(key)
	absent, limit := unlimited[field]
	switch {
	case !given:
		required := []reflect.Kind{reflect.Int64, reflect.Int, reflect.String}
		if v.IsZero() && !limit && slices.Contains(required, v.Kind()) {
			settings.Fail(fmt.Errorf("%s is missing", key))
		}
		return "", false
	case limit && text == none:
		v.SetInt(int64(absent))
		return text, true
	}
	switch v.Kind() {
	case reflect.Int64:
		d, _ := settings.Duration(key)
		v.SetInt(int64(d))
		text = d.String()
	case reflect.Int:
		n, _ := settings.Number(key, 0)
		v.SetInt(int64(n))
		text = strconv.Itoa(n)
	case reflect.Float64:
		v.SetFloat(settings.Float(key, 0))
		text = strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			settings.Fail(fmt.Errorf("%s %q: want true or false", key, text))
		}
		v.SetBool(b)
		text = strconv.FormatBool(b)
	case reflect.Uint8:
		readName(settings, key, text, v)
	default:
		v.SetString(text)
	}
	return text, true
}

// readName sets an enum by the name that its String method gives.
func readName(settings *backoff.Settings, key, text string, v reflect.Value) {
	var names []string
	for value := range uint64(3) {
		v.SetUint(value)
		name := fmt.Sprint(v.Interface())
		if name == text {
			return
		}
		names = append(names, name)
	}
	settings.Fail(fmt.Errorf("%s %q: want one of %s", key, text, strings.Join(names, ", ")))
}

// hadoopText has the settings of a HadoopLimited with a maximum number of retries.
type hadoopText struct {
	Sleep      time.Duration
	MaxRetries int
}

func (t hadoopText) exponential() (port, error) {
	return HadoopExponential(t.MaxRetries, t.Sleep.Milliseconds(), JavaMilliseconds), nil
}

func (t hadoopText) fixedCount() (port, error) {
	return HadoopFixedCount(t.MaxRetries, t.Sleep.Milliseconds(), JavaMilliseconds), nil
}

func (t hadoopText) proportional() (port, error) {
	return HadoopProportional(t.MaxRetries, t.Sleep.Milliseconds(), JavaMilliseconds), nil
}

type hadoopTimeText struct{ MaxTime, Sleep time.Duration }

func (t hadoopTimeText) policy() (port, error) {
	return HadoopFixedTime(t.MaxTime.Milliseconds(), t.Sleep.Milliseconds(), JavaMilliseconds), nil
}

type hadoopFailoverText struct {
	Delay, MaxDelay          time.Duration
	MaxFailovers, MaxRetries int
}

func (t hadoopFailoverText) policy() (port, error) {
	return HadoopFailover{
		MaxFailovers: t.MaxFailovers, MaxRetries: t.MaxRetries,
		DelayMillis: t.Delay.Milliseconds(), MaxDelayMillis: t.MaxDelay.Milliseconds(),
	}, nil
}

type hadoopPairsText struct{ Pairs string }

func (t hadoopPairsText) policy() (port, error) {
	p := ParseHadoopMultipleLinearRandom(t.Pairs)
	if p == nil {
		const remedy = "want milliseconds and retries in turn, such as 10000,6,60000,10"
		return HadoopLinear{}, fmt.Errorf("pairs %q: %s", t.Pairs, remedy)
	}
	return *p, nil
}

// resilience4jText has one field, Max, for Max and Capped.
type resilience4jText struct {
	Initial       time.Duration
	Multiplier    float64
	Randomization float64
	Random        bool
	Max           time.Duration
}

func (t resilience4jText) policy() (port, error) {
	return Resilience4j{
		Initial: t.Initial, Multiplier: t.Multiplier, Randomization: t.Randomization,
		Random: t.Random,
		Max:    t.Max, Capped: t.Max != math.MaxInt64,
	}, nil
}

// sethvargoText has the wrappers as text.
type sethvargoText struct {
	Shape    SethvargoShape
	Base     time.Duration
	Wrappers string
}

func (t sethvargoText) policy() (port, error) {
	p := Sethvargo{Shape: t.Shape, Base: t.Base}
	if t.Wrappers == none {
		return p, nil
	}
	for text := range strings.SplitSeq(t.Wrappers, ",") {
		w, err := parseSethvargoWrapper(text)
		if err != nil {
			return p, fmt.Errorf("wrappers: %w", err)
		}
		p.Wrappers = append(p.Wrappers, w)
	}
	return p, nil
}

var (
	sethvargoDurations = map[string]func(time.Duration) SethvargoWrapper{
		"jitter": SethvargoJitter, "capped": SethvargoCapped, "max_duration": SethvargoMaxDuration,
	}
	sethvargoCounts = map[string]func(uint64) SethvargoWrapper{
		"jitter_percent": SethvargoJitterPercent, "max_retries": SethvargoMaxRetries,
	}
)

func parseSethvargoWrapper(text string) (SethvargoWrapper, error) {
	name, value, _ := strings.Cut(text, ":")
	if text == "full_jitter" {
		return SethvargoFullJitter(), nil
	}
	if wrap := sethvargoDurations[name]; wrap != nil {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return SethvargoWrapper{},
				fmt.Errorf("%q: want a duration of 0 or more, such as %s:250ms", text, name)
		}
		return wrap(d), nil
	}
	if wrap := sethvargoCounts[name]; wrap != nil {
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return SethvargoWrapper{},
				fmt.Errorf("%q: want a whole number of 0 or more, such as %s:5", text, name)
		}
		return wrap(n), nil
	}
	known := slices.Concat([]string{"full_jitter"}, slices.Collect(maps.Keys(sethvargoDurations)),
		slices.Collect(maps.Keys(sethvargoCounts)))
	slices.Sort(known)
	return SethvargoWrapper{},
		fmt.Errorf("unknown wrapper %q: want one of %s", text, strings.Join(known, ", "))
}
