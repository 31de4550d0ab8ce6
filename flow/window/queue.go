//penstock:pure

package window

import (
	"fmt"
	"time"
)

// Queue is the window for receivers that say nothing of themselves: it holds a few batches queued
// at its worker, neither none (the worker would idle) nor many (they would only wait). The zero
// value works.
//
// The queue is estimated from the round trip as in TCP Vegas, q = W (1 - base/mean), against the
// mean round trip of the drained worker instead of the least; it is to stay between about 1.5 and 3
// sqrt(BDP), which is square-root staffing for workers that serve in parallel. Below that the
// window grows by one batch a round, above it shrinks by one, far above by up to a quarter. It
// starts at one batch and at least doubles per round trip until the worker is full. A window is
// counted in cost, a batch of the worker's mean cost as one.
type Queue struct {
	Initial int // batches; 0 means 1
	Max     int // batches; 0 means 1000

	// Short keeps the queue just long enough that a worker whose round trips vary seldom idles: about
	// the square root of the batches that are in the network. It costs 1 to 3 percent of the goodput
	// and needs thousands of batches per minute, because a probe of about a hundred batches drains the
	// queue every 5 to 20 s. Package limit sets it.
	Short bool
}

// Name returns "queue".
func (Queue) Name() string { return "queue" }

// Validate says what is wrong with q.
func (q Queue) Validate() error { return validRange("queue", q.Initial, q.Max) }

// New returns a window for one worker.
func (q Queue) New() Window {
	initial, top := filledRange(q.Initial, q.Max)
	w := &queueWindow{newDelay(initial, top, true)}
	w.restarts, w.base.short = true, q.Short
	return w
}

func validRange(name string, initial, top int) error {
	initial, top = filledRange(initial, top)
	switch {
	case top < 1 || top > maxSize:
		return fmt.Errorf("%s window with a maximum of %d batches: want 1 to %d", name, top, maxSize)
	case initial < 1 || initial > top:
		return fmt.Errorf("%s window that begins at %d batches: want 1 to its maximum, %d", name, initial, top)
	}
	return nil
}

func filledRange(initial, top int) (int, int) {
	if initial == 0 {
		initial = 1
	}
	if top == 0 {
		top = 1000
	}
	return initial, top
}

type queueWindow struct{ delay }

// queueCut is what failures of one round leave of the window at least.
const queueCut = 0.5

func (q *queueWindow) OnSample(s Sample) {
	if !q.sample(&s) {
		return
	}
	v := q.judge()
	switch {
	case q.start:
		q.started(v, s.Now)
	case q.vain(v, s.Now):
	case v.queue > 2*v.high+1:
		q.w = max(1, q.w-max(1, min((v.queue-v.high)/2, q.w/4)))
		q.since = s.Now
	case q.weighs():
		q.approach(v)
	case v.queue > v.high:
		q.w = max(1, q.w-1)
	case v.queue < v.low && v.limited:
		q.grow(v, s.Now)
	}
	v.after = q.w
	q.nextRound()
}

func (q *queueWindow) OnTimeout(now time.Duration, _ float64) { q.busy(now, timedOut, queueCut) }
func (q *queueWindow) OnNack(now time.Duration, _ float64)    { q.busy(now, nacked, queueCut) }

// AIMD is the window for receivers that are shared with senders that we know nothing of: one batch
// more a round while the worker is not full, a fifth less where it is or where something fails,
// once a round. Only multiplicative decrease comes to a fair share (Chiu and Jain 1989). What
// counts as full is what it is for [Queue]. The zero value works.
type AIMD struct {
	Initial int // batches; 0 means 1
	Max     int // batches; 0 means 1000
}

// Name returns "aimd".
func (AIMD) Name() string { return "aimd" }

// Validate says what is wrong with a.
func (a AIMD) Validate() error { return validRange("aimd", a.Initial, a.Max) }

// New returns a window for one worker.
func (a AIMD) New() Window {
	initial, top := filledRange(a.Initial, a.Max)
	w := &aimd{newDelay(initial, top, true)}
	w.restarts = true
	return w
}

type aimd struct{ delay }

const aimdCut = 0.8

func (a *aimd) OnSample(s Sample) {
	if !a.sample(&s) {
		return
	}
	v := a.judge()
	switch {
	case a.start:
		a.started(v, s.Now)
	case a.vain(v, s.Now):
	case v.queue > v.high:
		a.w = max(1, a.w*aimdCut)
		a.since = s.Now
	case v.queue < v.low && v.limited:
		a.grow(v, s.Now)
	}
	v.after = a.w
	a.nextRound()
}

func (a *aimd) OnTimeout(now time.Duration, _ float64) { a.busy(now, timedOut, aimdCut) }
func (a *aimd) OnNack(now time.Duration, _ float64)    { a.busy(now, nacked, aimdCut) }
