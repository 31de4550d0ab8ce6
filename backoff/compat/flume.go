//penstock:pure

package compat

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Flume is the wait of Apache Flume 1.11's SpoolDirectorySource when its channel is full or throws:
// 250 ms, doubling, at most Max. After a commit Flume starts over: use a new State. It never gives
// up.
//
// Quirks: Max is not applied to the first wait, so with a Max of 100 ms the first wait is 250 ms.
// With Off, every wait is 0, a hot loop. The wait is an int of milliseconds: with a Max near 2^31
// the doubling wraps to -100663296 ms, a hot loop (Compat only). [FlumeDefaults] has the settings
// of a source that configures none.
type Flume struct {
	Max    time.Duration // maxBackoff in whole milliseconds; 0 means 250 ms once, then 0
	Off    bool          // the setting backoff = false: every wait is 0
	Compat bool
}

// FlumeDefaults returns the settings of SpoolDirectorySource: at most 4 s.
func FlumeDefaults() Flume { return Flume{Max: 4 * time.Second} }

func (p Flume) wait(n uint32) time.Duration {
	switch {
	case p.Off:
		return 0
	case n == 0:
		return 250 * time.Millisecond
	case !p.Compat:
		return min(doubled(250*time.Millisecond, n), max(p.Max, 0))
	}
	top := int32(max(min(p.Max.Milliseconds(), math.MaxInt32), math.MinInt32))
	return millis(repeat(250, n, func(b int64) int64 { return int64(min(int32(b)<<1, top)) }))
}

// Next implements backoff.Policy.
func (p Flume) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	d := p.wait(s.N)
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p Flume) Bounds(n int) (lowest, mean, highest time.Duration) {
	d := p.wait(step(n))
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p Flume) Validate() error { return nil }

// FlumePenalty is the time for which Flume's FailoverSinkProcessor skips a failed sink: 1 s * 2^f,
// at most Max. f is the number of failures in a row, counted from 1.
//
// Quirk: the penalty is computed in an int of milliseconds, which wraps (Compat only). From the
// 22nd to the 31st failure it is negative or 0, except at the 27th, so that the sink is tried
// without a pause. At the 32nd failure it starts over at 1 s.
type FlumePenalty struct {
	Max    time.Duration // maxpenalty; 0 means that every wait is 0
	Compat bool
}

// FlumePenaltyDefaults returns the settings of FailoverSinkProcessor: at most 30 s.
func FlumePenaltyDefaults() FlumePenalty { return FlumePenalty{Max: 30 * time.Second} }

// Penalty returns the penalty after any number of failures in a row, from 1.
func (p FlumePenalty) Penalty(failures int) time.Duration {
	if !p.Compat {
		return min(doubled(time.Second, uint32(min(max(failures, 0), 63))), max(p.Max, 0))
	}
	penalty := int32(1) << (failures & 31) * 1000
	return min(millis(int64(penalty)), p.Max)
}

// Next implements backoff.Policy.
func (p FlumePenalty) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	d := p.Penalty(attemptOf(s.N))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p FlumePenalty) Bounds(n int) (lowest, mean, highest time.Duration) {
	d := p.Penalty(attemptOf(step(n)))
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p FlumePenalty) Validate() error { return nil }

// FlumeOrder is the penalty of Flume's OrderSelector (load-balancing sinks with backoff): 1 s *
// 2^f, at most Max. f is the number of failures in a row, at most 16. f starts over if the previous
// failure was so long ago that its penalty and another hour have passed.
type FlumeOrder struct {
	Max    time.Duration // maxTimeOut; 0 means that every wait is 0
	Compat bool          // whether a negative Max gives negative waits, as in the original
}

// FlumeOrderDefaults returns the settings of OrderSelector: at most 30 s.
func FlumeOrderDefaults() FlumeOrder { return FlumeOrder{Max: 30 * time.Second} }

func (p FlumeOrder) penalty(f uint32) time.Duration {
	return clamp(min(time.Second<<f, p.Max), p.Compat)
}

// Failed returns the penalty after a failure. The parameter gap is the time since the previous
// failure. It is ignored for the first failure. The field Step of the state holds the number of
// failures in a row, at most 16.
func (p FlumeOrder) Failed(s backoff.State, gap time.Duration) (time.Duration, backoff.State) {
	f := min(s.Step, 16)
	if s.N > 0 && gap < plus(p.penalty(f), time.Hour) {
		f = min(f+1, 16)
	} else {
		f = 1
	}
	d := p.penalty(f)
	s = s.After(d)
	s.Step = f
	return d, s
}

// Next implements backoff.Policy, like Failed with a gap of 0.
func (p FlumeOrder) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	s.Step = min(s.N, 16)
	d, s := p.Failed(s, 0)
	return d, s, true
}

// Bounds implements backoff.Bounder, for failures without a gap.
func (p FlumeOrder) Bounds(n int) (lowest, mean, highest time.Duration) {
	d := p.penalty(min(step(n), 15) + 1)
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p FlumeOrder) Validate() error { return nil }

// FlumeOutcome is the outcome of one turn of a Flume runner. A runner calls a source or sink in a
// loop, and a turn is one such call.
type FlumeOutcome uint8

// The outcomes of a turn.
const (
	FlumeReady             FlumeOutcome = iota // READY: work was done
	FlumeBackoff                               // BACKOFF: nothing to do
	FlumeDeliveryException                     // EventDeliveryException
	FlumeException                             // any other exception
)

// String returns ready, backoff, delivery exception or exception.
func (o FlumeOutcome) String() string {
	return name([]string{"ready", "backoff", "delivery exception", "exception"}, int(o))
}

// FlumeRunner is the wait between two turns of Flume's PollableSourceRunner, or of its SinkRunner
// if Sink is true. The wait is Increment times the number of turns in a row that returned BACKOFF,
// at most Max.
//
// Quirks: A source waits 0 after an EventDeliveryException, a hot loop. A sink waits Max after any
// exception. Exceptions do not change the number of BACKOFFs. With a negative Increment,
// Thread.sleep throws, and the runner waits Max, as after a FlumeException. A negative Max ends the
// original's runner. Here the wait is then 0.
type FlumeRunner struct {
	Increment time.Duration // 0 means that every wait after a BACKOFF is 0
	Max       time.Duration // 0 means that every wait is 0
	Sink      bool
}

// FlumeRunnerDefaults returns the settings of both runners: 1 s more for each BACKOFF, at most 5 s.
// In Flume, those of a sink runner cannot be changed.
func FlumeRunnerDefaults() FlumeRunner {
	return FlumeRunner{Increment: time.Second, Max: 5 * time.Second}
}

// wait returns the wait after count BACKOFFs in a row.
func (p FlumeRunner) wait(count int64) time.Duration {
	if p.Increment < 0 {
		return max(p.Max, 0)
	}
	return min(scaled(count, p.Increment), max(p.Max, 0))
}

// Turn returns the wait after a turn. The state keeps the number of BACKOFFs in a row in Step.
func (p FlumeRunner) Turn(s backoff.State, o FlumeOutcome) (time.Duration, backoff.State) {
	count, d := s.Step, time.Duration(0)
	switch {
	case o == FlumeReady:
		count = 0
	case o == FlumeBackoff:
		if count < math.MaxUint32 {
			count++
		}
		d = p.wait(int64(count))
	case o == FlumeException || p.Sink:
		d = max(p.Max, 0)
	}
	s = s.After(d)
	s.Step = count
	return d, s
}

// Next implements backoff.Policy as if each turn returned BACKOFF.
func (p FlumeRunner) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	s.Step = s.N
	d, s := p.Turn(s, FlumeBackoff)
	return d, s, true
}

// Bounds implements backoff.Bounder as if each turn returned BACKOFF.
func (p FlumeRunner) Bounds(n int) (lowest, mean, highest time.Duration) {
	d := p.wait(int64(step(n)) + 1)
	return d, d, d
}

// Validate implements backoff.Validator. It returns nil, because the original accepts all settings.
func (p FlumeRunner) Validate() error { return nil }
