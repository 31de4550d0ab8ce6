//penstock:pure

package window

import (
	"fmt"
	"time"
)

// Step determines how often a linear window decides whether to grow or to shrink.
type Step uint8

// The steps.
const (
	PerRound Step = iota // once per round of Limit acks, by the round's mean
	// PerAck means that the window decides at every ack, as in system D (see Linear). Without
	// congestion, it then doubles in each round trip.
	PerAck
)

// Linear is the window of a flow control that was built on top of Storm (system D in
// docs/flow-control.md). An ack with a round trip within the threshold is NORMAL, and widens the
// window by one batch if the window was the limit. An ack above the threshold is SLOW, and narrows
// the window by one. With PerRound, the mean of a round counts instead of a single ack. A timeout
// or a nack is BUSY, and narrows the window by one at once. The zero value is usable.
//
// Without a Threshold the verdict depends on the queue that the window causes at its worker. By
// Little's law, a window of W batches keeps q = W (1 - base/m) of them waiting. Here m is the mean
// round trip, and base the round trip of the drained worker. With BDP = W base/m, the verdict is
//
//	NORMAL   if q < max(2, 1.5 sqrt(BDP))
//	SLOW     if q > max(3, 3 sqrt(BDP))
//
// If q is in the range between these bounds, the window does not change. The range grows with the
// measured jitter. The sources are Vegas's queue estimate, square-root staffing, and the starvation
// theorem of SIGCOMM 2022.
type Linear struct {
	Initial int // batches; 0 means 1
	Max     int // batches; 0 means 1000
	// Threshold is the maximum round trip that is NORMAL, whatever the cost of the batch. 0 means
	// that the queue decides, as described above.
	Threshold time.Duration
	Step      Step
}

// Name returns "linear".
func (Linear) Name() string { return "linear" }

// Most returns Max.
func (l Linear) Most() int { return l.Max }

// Validate returns an error if l is invalid.
func (l Linear) Validate() error {
	l = l.filled()
	switch {
	case l.Max < 1 || l.Max > maxSize:
		return fmt.Errorf("linear window with a maximum of %d batches: want 1 to %d", l.Max,
			maxSize)
	case l.Initial < 1 || l.Initial > l.Max:
		return fmt.Errorf("linear window that begins at %d batches: want 1 to its maximum, %d",
			l.Initial, l.Max)
	case l.Threshold < 0:
		return fmt.Errorf("linear window with a threshold of %v: want a positive one, "+
			"or 0 to measure it", l.Threshold)
	case l.Step > PerAck:
		return fmt.Errorf("linear window with step %d: want PerRound or PerAck", l.Step)
	}
	return nil
}

func (l Linear) filled() Linear {
	if l.Initial == 0 {
		l.Initial = 1
	}
	if l.Max == 0 {
		l.Max = 1000
	}
	return l
}

// New returns a window for one worker.
func (l Linear) New() Window {
	l = l.filled()
	return &linear{cfg: l, w: float64(l.Initial)}
}

// linear is one worker's window. Times are in seconds.
type linear struct {
	cfg      Linear
	w        float64
	round    round
	base     base
	state    State
	verdict  verdict
	since    time.Duration // samples sent earlier are ignored
	undoable int           // steps taken for timeouts, which a late ack may still undo
}

func (l *linear) Limit() float64 {
	if l.base.probing {
		return l.base.narrow
	}
	return l.w
}
func (l *linear) Batches() bool              { return true }
func (l *linear) Epoch() uint32              { return l.base.epoch }
func (l *linear) Probing() bool              { return l.base.probing }
func (l *linear) Base() time.Duration        { return seconds(l.base.value) }
func (l *linear) EndProbe(now time.Duration) { l.base.end(); l.round.begin() }
func (l *linear) Discard(now time.Duration)  { l.round.begin(); l.since = now }

func (l *linear) State() State {
	if l.base.probing {
		return Probing
	}
	return l.state
}

func (l *linear) OnSample(s Sample) {
	if s.Late {
		return
	}
	x := s.normal()
	if l.cfg.Threshold == 0 {
		if l.base.sample(&s, x, false) {
			if !l.base.probing {
				l.round.begin()
			}
			return
		}
	}
	if l.since > 0 && s.Now-s.RoundTrip < l.since {
		return
	}
	l.round.add(&s, x)
	if l.cfg.Step == PerRound && float64(l.round.n) < l.w {
		return
	}
	l.endRound()
	l.round.begin()
}

// endRound decides, after a round, whether the window grows or shrinks by one batch or stays. It
// records the reasons in l.verdict.
func (l *linear) endRound() {
	v := verdict{cause: roundEnded, before: l.w, limited: l.round.limited > 0}
	if l.cfg.Threshold > 0 {
		v.threshold = true
		v.mean, v.base = l.round.rawMean(), l.cfg.Threshold.Seconds()
		// Compare whole nanoseconds, so that the threshold itself is NORMAL.
		slow := l.round.raw > l.cfg.Threshold*time.Duration(l.round.n)
		l.step(slow, !slow, v.limited)
	} else {
		v.mean = l.round.smooth()
		l.base.followMean(v.mean, l.round.jitter())
		v.base = l.base.value
		v.queue, v.low, v.high = queue(l.w, v.base, v.mean, l.round.jitter(), 1)
		l.step(v.queue > v.high, v.queue < v.low, v.limited)
	}
	v.after = l.w
	l.verdict = v
}

func (l *linear) step(slow, normal, limited bool) {
	switch {
	case slow:
		l.w = max(1, l.w-1)
		l.state = Slow
	case normal:
		l.state = Normal
		if limited {
			l.w = min(l.w+1, float64(l.cfg.Max))
		}
	default:
		l.state = Normal
	}
}

func (l *linear) narrow(c cause) {
	l.verdict = verdict{cause: c, before: l.w}
	if l.w > 1 {
		l.w--
		if c == timedOut {
			l.undoable++
		}
	}
	l.verdict.after = l.w
	l.state = Busy
	l.round.begin()
}

func (l *linear) OnTimeout(time.Duration, float64) { l.narrow(timedOut) }
func (l *linear) OnNack(time.Duration, float64)    { l.narrow(nacked) }

func (l *linear) OnUndo(time.Duration) {
	if l.undoable == 0 {
		return
	}
	l.undoable--
	l.verdict = verdict{cause: undone, before: l.w}
	l.w = min(l.w+1, float64(l.cfg.Max))
	l.verdict.after = l.w
	l.state = Normal
}

func (l *linear) Reset(time.Duration) {
	l.verdict = verdict{cause: restarted, before: l.w, after: 1}
	l.w, l.undoable, l.state = 1, 0, Unknown
	l.base.restart()
	l.round = round{}
}

func (l *linear) ProbeWithin() time.Duration {
	if l.cfg.Threshold > 0 {
		return 0
	}
	return l.base.probeWithin()
}

func (l *linear) BeginProbe(time.Duration) {
	bdp := l.w
	if m := l.round.smoothed; m > 0 && l.base.value > 0 {
		bdp = l.w * min(1, l.base.value/m)
	}
	l.base.begin(l.base.narrowed(bdp))
}

func (l *linear) Reason() string {
	if l.base.probing {
		return l.base.reason()
	}
	return l.verdict.reason()
}
