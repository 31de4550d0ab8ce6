//penstock:pure

package limit

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// admission decides which calls may run now, which ones wait and which ones are refused. It reads
// no clock: callers pass in the time since an origin, which never decreases. Callers wait only
// while at least as many calls run as the limit allows.
type admission struct {
	window    window.Window
	limit     int // whole slots of the window, at least 1
	epoch     uint32
	inFlight  int
	full      time.Duration // when the limit was last known to be reached
	delivered float64       // successes since the origin
	failed    time.Duration // time of the failure that began the current round of the window
	// mean is the smoothed round trip of the successes in seconds. It is zero before the first
	// success.
	mean       float64
	slots      []slot
	free       []uint32 // indexes of slots without a call
	queue      queue
	maxWaiting int
	maxWait    time.Duration // zero means no bound
	probes     probes
	counts     Counts
}

// slot is one running call.
type slot struct {
	use       uint32 // distinguishes the calls that use the slot one after another
	taken     bool
	epoch     uint32
	start     time.Duration
	ahead     int     // calls in flight just after it started, itself included
	delivered float64 // successes before it started
}

// handle identifies one use of a slot.
type handle struct{ slot, use uint32 }

// newAdmission returns the admission for o. The defaults in o must be filled in. The parameter
// clock is the time on the wall clock at the origin. All other times count from the origin.
func newAdmission(o Options, clock time.Duration) *admission {
	a := &admission{window: o.Window.New(), maxWaiting: max(o.MaxWaiting, 0), maxWait: o.MaxWait}
	a.probes.clock = clock
	a.probes.window, _ = a.window.(window.Prober)
	a.refresh()
	return a
}

// refresh copies the limit and the epoch from the window. It is called after each event that may
// have changed the window. Each call keeps the epoch at which it started. The window changes its
// epoch, for example when a probe begins, so that the round trips of earlier calls do not affect
// its new state.
func (a *admission) refresh() {
	a.limit, a.epoch = max(1, int(a.window.Limit()+1e-9)), a.window.Epoch()
}

func (a *admission) hasRoom() bool { return a.inFlight < a.limit }

// start takes a slot for a call and counts it as running. The result identifies the call for
// finish.
func (a *admission) start(now time.Duration) handle {
	if len(a.free) == 0 {
		a.free = append(a.free, uint32(len(a.slots)))
		a.slots = append(a.slots, slot{})
	}
	i := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	a.inFlight++
	a.counts.Started++
	s := &a.slots[i]
	*s = slot{use: s.use + 1, taken: true, epoch: a.epoch, start: now, ahead: a.inFlight,
		delivered: a.delivered}
	if !a.hasRoom() {
		a.full = now
	}
	return handle{i, s.use}
}

// finish ends a call and starts the waiters for which there is room. It does nothing if the call
// has ended before.
func (a *admission) finish(now time.Duration, h handle, o Outcome) {
	if int(h.slot) >= len(a.slots) {
		return
	}
	s := &a.slots[h.slot]
	if !s.taken || s.use != h.use {
		return
	}
	if !a.hasRoom() {
		a.full = now
	}
	s.taken = false
	a.inFlight--
	a.free = append(a.free, h.slot)
	switch o {
	case Success:
		a.succeed(now, s)
	case TimedOut:
		a.counts.TimedOut++
		a.fail(now, s)
		a.window.OnTimeout(now, 1)
	case Overloaded:
		a.counts.Overloaded++
		a.fail(now, s)
		a.window.OnNack(now, 1)
	default:
		a.counts.Ignored++
	}
	a.refresh()
	a.grant(now)
}

// fail begins a new round of the window, so that a failure may shrink the window again. It does so
// only if the failed call, in slot s, started after the failure that began the current round.
//
// With the default algorithm, the failures of one round together shrink the window at most to half.
// Normally a round ends after enough successes. If no call succeeds, only this method ends a round.
// Example: calls A and B start, and then A times out, which halves the window. If B times out, the
// window is not halved again, because B started before the timeout of A. If a call that started
// after the timeout of A times out, the window is halved again.
func (a *admission) fail(now time.Duration, s *slot) {
	if d, ok := a.window.(window.Discarder); ok && s.start >= a.failed {
		d.Discard(now)
		a.failed = now
	}
}

// meanWeight is the weight of the newest round trip in the smoothed one, as in RFC 6298.
const meanWeight = 1.0 / 8

func (a *admission) succeed(now time.Duration, s *slot) {
	limited := a.full >= s.start // at some time while it ran
	rtt := max(now-s.start, 1)
	a.counts.Succeeded++
	a.delivered++
	if a.mean == 0 {
		a.mean = rtt.Seconds()
	}
	a.mean += meanWeight * (rtt.Seconds() - a.mean)
	a.window.OnSample(window.Sample{
		Now: now, RoundTrip: rtt, Cost: 1, Mean: 1, InFlightAtSend: float64(s.ahead),
		Done:    a.delivered - s.delivered,
		Limited: limited, Epoch: s.epoch,
	})
	a.probes.sampled(now, limited, a.mean)
}

// grant starts waiters while there is room.
func (a *admission) grant(now time.Duration) {
	for a.hasRoom() {
		w := a.queue.pop()
		if w == nil {
			return
		}
		if w.startBy > 0 && now >= w.startBy {
			a.refuse(w, QueueTooSlow)
			continue
		}
		w.state, w.permit = granted, a.start(now)
		w.wake()
	}
}

func (a *admission) refuse(w *waiter, why Reason) {
	w.state, w.refusal = refused, why
	a.counts.Refused++
	w.wake()
}

// expectedWait returns the expected wait of a caller with the given number of waiting callers ahead
// of it. By Little's law, with a limit of L calls and round trips of T, L/T calls end per second.
// Example: with a limit of 10 and round trips of 0.1 s, 100 calls end per second. So a caller with
// 50 callers ahead of it waits for about half a second.
func (a *admission) expectedWait(ahead int) time.Duration {
	return seconds(float64(ahead+1) * a.mean / float64(a.limit))
}

// enqueue adds a caller to the queue, or returns the reason for its refusal. The parameter deadline
// is that of the caller's context, or zero if it has none.
func (a *admission) enqueue(now, deadline time.Duration, w *waiter) Reason {
	wait := a.expectedWait(a.queue.ahead(w.priority))
	w.startBy = deadline
	latest := now + min(a.maxWait, math.MaxInt64-now) // the sum does not overflow
	if a.maxWait > 0 && (deadline == 0 || latest < deadline) {
		w.startBy = latest
	}
	var displaced *waiter
	why := Reason(0)
	switch {
	case a.maxWait > 0 && wait > a.maxWait:
		why = QueueTooSlow
	case deadline > 0 && now+wait+seconds(a.mean) > deadline:
		why = DeadlineSoon
	case a.queue.n >= a.maxWaiting:
		if displaced = a.queue.displaceable(w.priority); displaced == nil {
			why = QueueFull
		}
	}
	if why != 0 {
		a.counts.Refused++
		return why
	}
	if displaced != nil {
		a.queue.remove(displaced)
		a.refuse(displaced, Displaced)
	}
	a.queue.push(w)
	return 0
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }
