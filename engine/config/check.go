package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Limits of option values.
const (
	// maxBatchBytes is the largest value of the option batch.bytes. Offsets in a batch have 32
	// bits, so a batch must stay below 4 GiB. maxBatchBytes is far below that, because the last
	// record of a batch may extend beyond batch.bytes.
	maxBatchBytes   = stream.Size(1 << 30)
	maxBatchRecords = 1 << 24
	maxWindow       = 1000
	minTrace        = stream.Size(64 << 10) // a smaller trace would end after few events

	maxPoison       = 100
	maxWaiting      = 100_000_000
	maxGuardRecords = 100_000 // maximum of guard.records
)

// check finds values and combinations of options in one route that cannot work. Its functions
// identify an option by two arguments. The argument part is a key of the route, such as flow, and
// the argument key is a key below it. For an option without keys below it, such as memory, key is
// "".
type check struct {
	route *Route
	given func(part, key string) bool                        // reports whether the config sets it
	wrong func(part, key string, format string, args ...any) // records a problem
}

func (c check) all() {
	for _, o := range c.route.withoutEffect() {
		for _, key := range o.keys {
			if o.message != "" && c.given(o.part, key) {
				c.wrong(o.part, key, "%s", strings.ReplaceAll(o.message, "%s", o.part+"."+key))
			}
		}
	}
	c.batch()
	c.flow()
	c.retry()
	c.guard()
	c.limits()
}

// effect describes whether keys of a part of the route have an effect.
type effect struct {
	none bool
	part string
	keys []string
	// message is the error if the config sets one of the keys, with %s in place of the key. It is
	// "" if the config may set the keys although they have no effect.
	message string
}

// withoutEffect returns the keys that have no effect because of the values of other keys.
func (r *Route) withoutEffect() []effect {
	f := &r.Flow
	fixed, linear := f.Window == "fixed", f.Window == "linear"
	return slices.DeleteFunc([]effect{
		{fixed, "flow", []string{"initial", "max", "threshold", "step"},
			"%s has no effect with window: fixed, which never changes; remove it"},
		{!fixed, "flow", []string{"size"}, "%s needs window: fixed; with window: " + f.Window +
			", a window starts at flow.initial and grows to flow.max"},
		{!fixed && !linear, "flow", []string{"threshold", "step"},
			"%s needs window: linear; add that, or remove %s"},
		{f.Dispatch != "least_completion", "flow", []string{"tie_band"}, ""},
		{f.Poison == 0, "flow", []string{"poisoned"},
			"%s has no effect with poison: 0, where no batch is ever suspected; remove it"},
		{f.Redeliver == 0, "flow", []string{"redeliver_rate"},
			"%s has no effect with redeliver: 0, which sets no limit; remove it"},
		{f.Order == "", "flow", []string{"order"}, ""}, // the sink's default order
		{f.Trace == "", "flow", []string{"trace", "trace_max"}, ""},
		{!isShape(r.Retry.Backoff), "retry", replacedByPolicy, ""},
		{r.Guard.Off, "guard", []string{"share", "records"},
			"%s has no effect with off: true; remove one of them"},
	}, func(e effect) bool { return !e.none })
}

// composite checks the flow options of a sink that consists of other sinks, such as failover.
func (c check) composite() {
	_, ok := c.route.Sink.Options.(stream.Composite)
	if ok && c.route.Flow.Dispatch == "hash" {
		c.wrong("flow", "dispatch", "flow.dispatch is hash, which assigns each batch to one "+
			"worker, but sink %s has standby workers; remove it", c.route.Sink.Component.Name)
	}
}

// inRange reports whether a value is between least and most, and records a problem if not. allowed
// describes these bounds.
func inRange[T cmp.Ordered](c check, part, key string, value, least, most T, allowed string) bool {
	if value >= least && value <= most {
		return true
	}
	c.wrong(part, key, "%s.%s is %v; it may be %s", part, key, value, allowed)
	return false
}

// upTo describes the bounds 1 to most.
func upTo(most int, unit string) string { return fmt.Sprintf("1 to %d%s", most, unit) }

func (c check) guard() {
	g := c.route.Guard
	inRange(c, "guard", "share", g.Share, 0, 1, "0 to 1, such as 0.1 for 10 %")
	inRange(c, "guard", "records", g.Records, 1, maxGuardRecords, upTo(maxGuardRecords, ""))
}

func (c check) batch() {
	b := c.route.Batch
	inRange(c, "batch", "bytes", b.Bytes, 1, maxBatchBytes, fmt.Sprintf("1B to %v", maxBatchBytes))
	inRange(c, "batch", "records", b.Records, 1, maxBatchRecords, upTo(maxBatchRecords, ""))
	if b.Linger > time.Hour {
		c.wrong("batch", "linger", "batch.linger is %v; it may be at most 1h, because data "+
			"waits that long", short(b.Linger))
	}
	switch k := c.route.Checkpoint; {
	case k.Replay >= b.Bytes:
	case c.given("checkpoint", "replay"):
		c.wrong("checkpoint", "replay",
			"checkpoint.replay (%v) is smaller than one batch (batch.bytes is %v), so that no "+
				"batch could be sent", k.Replay, b.Bytes)
	default:
		c.wrong("batch", "bytes", "batch.bytes (%v) is more than checkpoint.replay (%v by "+
			"default), so that no batch could be sent",
			b.Bytes, k.Replay)
	}
	if c.given("memory", "") && c.route.Memory < b.Bytes {
		c.wrong("memory", "", "memory (%v) is smaller than one batch (batch.bytes is %v)",
			c.route.Memory, b.Bytes)
	} else if c.route.Memory < b.Bytes {
		c.wrong("batch", "bytes", "batch.bytes (%v) is more than memory (%v by default), so that "+
			"no batch fits", b.Bytes, c.route.Memory)
	}
}

func (c check) flow() {
	f := c.route.Flow
	c.window()
	for _, v := range []struct{ key, value string }{{"timeout", f.Timeout},
		{"threshold", f.Threshold}} {
		if v.value == "auto" {
			continue
		}
		d, err := parseDuration(v.value, `"`+v.value+`"`)
		switch {
		case err != nil:
			c.wrong("flow", v.key, "flow.%s: %v, or auto", v.key, err)
		case d == 0:
			c.wrong("flow", v.key, "flow.%s is 0; every worker would be too slow", v.key)
		case v.key == "timeout" && d >= f.Abandon:
			c.wrong("flow", v.key,
				"flow.timeout (%v) must be shorter than flow.abandon (%v): a batch first goes "+
					"to another worker, and later its attempt is ended",
				short(d), short(f.Abandon))
		}
	}
	if f.Abandon <= 0 {
		c.wrong("flow", "abandon", "flow.abandon is 0; every attempt would end before it began")
	}
	c.trace()
	c.composite()
	if inRange(c, "flow", "tie_band", f.TieBand, 0, 1, "0 (no tie) to 1 (twice as long)") &&
		f.TieBand > 0 && f.Dispatch != "least_completion" {
		c.wrong("flow", "tie_band", "flow.tie_band needs dispatch: least_completion; remove it")
	}
	c.repeats()
}

// repeats checks the options by which a batch may be sent more than once (redelivery, hedges,
// poison batches). It also checks the limits on concurrent attempts.
func (c check) repeats() {
	f := c.route.Flow
	switch {
	case !f.Hedge:
	case f.Order == "partition":
		c.wrong("flow", "hedge", "flow.hedge has no effect with order: partition, where no "+
			"batch is at two workers; remove one of them")
	case f.Dispatch == "hash":
		c.wrong("flow", "hedge", "flow.hedge has no effect with dispatch: hash, which assigns "+
			"each batch to one worker; remove one of them")
	}
	inRange(c, "flow", "poison", f.Poison, 0, maxPoison,
		upTo(maxPoison, " workers, or 0 for any number"))
	for _, l := range f.limits() {
		part, key, name := l.key, "concurrency", l.key
		if c.given("flow", l.key) {
			part, key, name = "flow", l.key, "flow."+l.key
		}
		if l.Concurrency < 0 {
			c.wrong(part, key, "%s.concurrency is %d; it may be 1 or more batches, or 0 for no "+
				"limit", name, l.Concurrency)
		}
	}
	inRange(c, "flow", "redeliver", f.Redeliver, 0, 1,
		"0 (no limit) to 1 failed retries for each delivered batch")
	if f.Redeliver != 0 {
		inRange(c, "flow", "redeliver_rate", f.RedeliverRate, 0.1, 10_000,
			"0.1 to 10000 failed retries a second")
	}
}

func (c check) trace() {
	f := c.route.Flow
	if f.TraceMax < minTrace {
		c.wrong("flow", "trace_max", "flow.trace_max is %v; it may be %v or more", f.TraceMax,
			minTrace)
	} else if f.Trace == "" && c.given("flow", "trace_max") {
		c.wrong("flow", "trace_max", "flow.trace_max limits a trace, but flow.trace is missing; "+
			"add it, or remove flow.trace_max")
	}
	if c.given("flow", "trace") && f.Trace == "" {
		c.wrong("flow", "trace", "flow.trace is empty; name a file, or remove the key for no trace")
	}
}

func (c check) window() {
	f := c.route.Flow
	batches := upTo(maxWindow, " batches")
	switch {
	case f.Window == "fixed" && !c.given("flow", "size"):
		c.wrong("flow", "window", "flow.window: fixed needs flow.size, the number of in-flight "+
			"batches of each worker")
	case f.Window == "fixed":
		inRange(c, "flow", "size", f.Size, 1, maxWindow, batches)
	case inRange(c, "flow", "max", f.Max, 1, maxWindow, batches):
		inRange(c, "flow", "initial", f.Initial, 1, f.Max,
			fmt.Sprintf("1 to flow.max, which is %d", f.Max))
	}
}

func (c check) retry() {
	r := &c.route.Retry
	c.retryEnd(r)
	if !isShape(r.Backoff) {
		c.retryPolicy(r.Backoff)
		return
	}
	if r.Base <= 0 {
		c.wrong("retry", "base", "retry.base is 0; a failed batch would be sent again without "+
			"a pause")
	}
	if r.Backoff == "fixed" && !c.given("retry", "max") {
		r.Max = r.Base
	}
	if r.Base > r.Max {
		c.wrong("retry", "base", "retry.base (%v) is longer than retry.max (%v)", short(r.Base),
			short(r.Max))
	}
}

// retryEnd checks the options for exhausted batches, which have failed too often or for too long.
// It also checks the limit on records that wait for a retry.
func (c check) retryEnd(r *Retry) {
	ends := r.Attempts > 0 || r.MaxElapsed > 0
	switch {
	case r.Attempts < 0:
		c.wrong("retry", "attempts", "retry.attempts is %d; it may be 1 or more, or 0 for any "+
			"number", r.Attempts)
	case r.MaxElapsed < 0:
		c.wrong("retry", "max_elapsed", "retry.max_elapsed is %v; it may be above 0, or 0 for "+
			"any time", short(r.MaxElapsed))
	case ends && r.Exhausted == "keep" && !c.given("retry", "exhausted"):
		c.wrong("retry", "attempts", "retry has a limit, but no treatment of batches that reach "+
			"it; add exhausted: dead_letter, or exhausted: keep")
	case !ends && r.Exhausted == "dead_letter":
		c.wrong("retry", "exhausted",
			"retry.exhausted: dead_letter has no effect without retry.attempts or "+
				"retry.max_elapsed; add one of them")
	case ends && c.route.Flow.Poison == 0:
		c.wrong("retry", "attempts", "retry.attempts and max_elapsed have no effect with "+
			"flow.poison: 0, where no batch is ever suspected")
	}
	if n := r.Waiting.Records; n < 1 || n > maxWaiting {
		c.wrong("retry", "waiting", "retry.waiting.records is %d; it may be 1 to %d", n, maxWaiting)
	}
}

func (c check) limits() {
	if c.route.DeadLetters.Max < 1 {
		c.wrong("dead_letters", "max", "dead_letters.max is 0; the first dead letter would stop "+
			"the route")
	}
	if c.route.DeadLetters.Dir == "" {
		c.wrong("dead_letters", "dir", "dead_letters.dir is empty; name a directory, or remove "+
			"the key for dead in the state directory")
	}
	if s := c.route.Checkpoint.Sync; s <= 0 || s > time.Hour {
		c.wrong("checkpoint", "sync", "checkpoint.sync is %v; it may be more than 0 and at most 1h",
			short(s))
	}
	if c.route.Drain <= 0 {
		c.wrong("drain", "", "drain is 0; a stop would not wait for in-flight batches. To stop "+
			"at once, send a second signal (Ctrl-C, Ctrl-C)")
	}
	if c.route.Memory < 1 {
		c.wrong("memory", "", "memory is 0; no batch fits")
	}
}

// short formats a duration without zero units: 2h instead of 2h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
