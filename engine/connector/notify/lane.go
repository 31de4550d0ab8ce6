//penstock:pure

package notify

import (
	"container/heap"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/limit"
)

const (
	downAfter  = 3                      // failures in a row (no response, 5xx) of a down host
	firstProbe = 15 * time.Second       // wait before the first probe of a down host; doubles
	lastProbe  = 30 * time.Minute       // maximum wait between probes
	slowAfter  = time.Second            // a host with a longer attempt is slow
	longAfter  = 300 * time.Millisecond // a longer attempt moves to an extra place
)

// lane is the state of a host with parked deliveries, which wait on disk for their next attempts.
// Only the dispatcher (type sender) uses it. circuit is nil until the first failure.
type lane struct {
	id       int64
	name     string
	group    string    // pattern of allow.hosts that allows the host; "" if listed by name
	due      time.Time // time of the earliest delivery that may be sent
	index    int       // index in the heap, or -1
	visited  uint64    // number of the last visit; see laneHeap
	inFlight []int64   // ids of deliveries
	window   *limit.Limiter
	circuit  *breaker.Circuit
	failed   []int64       // ids of deliveries that have failed since the last success
	since    time.Time     // time of the first of these failures
	reason   string        // reason of the last failure
	slow     bool          // last attempt slow, unanswered or a 5xx, or one in flight is slow
	full     bool          // the last visit found more due deliveries than it could send
	absent   absence       // why the lane is not in the heap, even if it has due deliveries
	paced    time.Duration // state of the host's rate limit
	opens    time.Time     // when the rate limit allows the next request; zero if it does now
}

// absence is the reason why a lane is not in the heap of lanes to be visited.
type absence uint8

const (
	present   absence = iota // the lane is in the heap if a visit is scheduled
	held                     // the slow hosts have used up their share of the attempts
	recording                // skipped planned times are being stored
)

func newLane(h parked.Host) *lane { return &lane{id: h.ID, name: h.Name, due: h.Due, index: -1} }

// newCircuit returns the circuit breaker of a host. The circuit opens after consecutive failures of
// downAfter different deliveries. It never opens because of failures of a single delivery, since
// the delivery must keep its exact schedule.
func newCircuit() *breaker.Circuit {
	c, err := breaker.NewCircuit(breaker.Options{
		Failures:     downAfter,
		FailureRate:  -1,
		Wait:         backoff.Exponential(firstProbe, 2, lastProbe),
		ProbeTimeout: 10 * time.Minute,
	}, nil)
	if err != nil {
		panic(err) // the options are valid
	}
	return c
}

// isDown reports whether the host counts as down. A host that is down gets only probes, the last
// attempts of deliveries, and attempts that an operator has forced.
func (l *lane) isDown() bool { return l.circuit != nil && l.circuit.State() != breaker.Closed }

// allow reports whether the circuit breaker of the host allows an attempt. If it does, the caller
// must call settle after the attempt. now is relative to laneSet.epoch.
func (l *lane) allow(now time.Duration) (breaker.Ticket, bool) {
	if l.circuit == nil {
		return breaker.Ticket{}, true // the ticket of a new circuit
	}
	return l.circuit.Allow(now)
}

// settle reports the outcome of an attempt to the circuit breaker of the host. At the first
// failure, it creates this circuit breaker.
func (l *lane) settle(now time.Duration, t breaker.Ticket, o breaker.Outcome) {
	if l.circuit == nil {
		if o != breaker.Failure {
			return
		}
		l.circuit = newCircuit()
	}
	l.circuit.Done(now, t, o, 0)
}

// isIdle reports whether the host of the lane has no in-flight attempts, no failures and no wait
// for its rate limit. It does not matter whether the host is slow.
func (l *lane) isIdle(now time.Duration) bool {
	return len(l.inFlight) == 0 && len(l.failed) == 0 && !l.isDown() && l.paced <= now
}

// isResting reports whether the lane (the state of a host) can be deleted to make room for another
// host. It can be deleted if nothing is in flight, nothing is due at the time now, and the host's
// rate limit would allow a request. In addition, the lane must not wait until slow hosts may have
// more attempts, or until skipped attempts are stored. since is the same time as now, as a duration
// since laneSet.epoch.
func (l *lane) isResting(now time.Time, since time.Duration) bool {
	return len(l.inFlight) == 0 && l.absent == present && l.paced <= since &&
		(l.index < 0 || l.due.After(now))
}

// worth ranks a lane (the state of a host) that can be deleted to make room for another host. It
// returns how much its deletion would lose: 1 for waiting deliveries, plus 2 for earlier failures
// or slowness. Lanes of low worth are deleted first.
func (l *lane) worth() (n int) {
	if l.index >= 0 {
		n++
	}
	if l.slow || len(l.failed) > 0 || l.circuit != nil {
		n += 2
	}
	return n
}

// attempt is an in-flight attempt to send a delivery.
type attempt struct {
	lane  *lane
	begun time.Time
	speed speed
}

// speed is the class of an in-flight attempt. An attempt changes its class as it gets older. The
// columns of the table are its current class, and the entries its next class:
//
//	event                                quick   long   slow
//	in flight for over longAfter         long    -      -
//	in flight for over slowAfter         -       slow   -
type speed uint8

const (
	quickAttempt speed = iota // at a host that is not known to be slow
	longAttempt
	slowAttempt // at a slow host
)

// attemptSlots bounds the in-flight attempts, so that slow hosts take few places from hosts that
// respond quickly. `attempts` is the limit on attempts. Up to `extra` attempts of the classes long
// and slow (see speed) do not count against it. An attempt at a slow host begins only while fewer
// than `share` slow attempts are in flight.
//
// Example: attempts is 256, extra is 192, and share is 64. If 100 long and slow attempts are in
// flight, 256 quick ones may be in flight as well. If 200 long and slow attempts are in flight, 192
// of them are not counted, and 248 quick ones may be in flight.
type attemptSlots struct {
	attempts, share, extra int
	slow                   int        // number of slow attempts
	recent                 []*attempt // quick and long attempts, the oldest first
	long                   int        // number of long attempts, which are at the start of recent
}

func newAttemptSlots(attempts int) attemptSlots {
	return attemptSlots{attempts: attempts, share: max(1, attempts/4), extra: attempts * 3 / 4}
}

// isFull reports whether no further attempt may begin.
func (p *attemptSlots) isFull() bool {
	return p.busy()-min(p.extra, p.slow+p.long) >= p.attempts
}

// isFullFor reports whether no further attempt may begin at a lane's host.
func (p *attemptSlots) isFullFor(l *lane) bool { return l.slow && p.slow >= p.share || p.isFull() }

// busy returns the number of in-flight attempts.
func (p *attemptSlots) busy() int { return p.slow + len(p.recent) }

// begin adds an attempt that starts now, and returns it.
func (p *attemptSlots) begin(l *lane, now time.Time) *attempt {
	a := &attempt{lane: l, begun: now}
	if l.slow {
		a.speed = slowAttempt
		p.slow++
	} else {
		p.recent = append(p.recent, a)
	}
	return a
}

// age changes the class of in-flight attempts that have become older (see speed). When an attempt
// becomes slow, its host becomes slow, too. So a host that does not respond is slow after
// slowAfter, although its first attempt times out much later.
func (p *attemptSlots) age(now time.Time) {
	for ; p.long < len(p.recent) && now.Sub(p.recent[p.long].begun) > longAfter; p.long++ {
		p.recent[p.long].speed = longAttempt
	}
	n := 0
	for n < p.long && now.Sub(p.recent[n].begun) > slowAfter {
		p.recent[n].speed, p.recent[n].lane.slow = slowAttempt, true
		n++
	}
	p.recent = slices.Delete(p.recent, 0, n)
	p.long -= n
	p.slow += n
}

// untilAged returns the time until an attempt becomes old enough to change its class (see speed).
func (p *attemptSlots) untilAged(now time.Time) time.Duration {
	wait := time.Hour
	if p.long > 0 {
		wait = p.recent[0].begun.Add(slowAfter + time.Millisecond).Sub(now)
	}
	if p.long < len(p.recent) {
		wait = min(wait, p.recent[p.long].begun.Add(longAfter+time.Millisecond).Sub(now))
	}
	return max(0, wait)
}

// end removes an attempt that has ended.
func (p *attemptSlots) end(a *attempt) {
	switch a.speed {
	case slowAttempt:
		p.slow--
		return
	case longAttempt:
		p.long--
	}
	p.recent = slices.DeleteFunc(p.recent, func(other *attempt) bool { return other == a })
}

// evidence is the conclusion from an attempt about its host.
type evidence uint8

const (
	noEvidence evidence = iota // no request was sent, or the attempt was aborted
	hostUp                     // the host has responded, even if it has refused the record
	hostDown                   // no response, or a 5xx
)

// end updates the lane at the end of an attempt, and returns the outcome for the circuit breaker.
// id identifies the delivery. If one delivery fails several times, only its first failure counts,
// until the next success at the host. Failures of probes always count.
func (l *lane) end(id int64, e evidence, probe bool, reason string, now time.Time) breaker.Outcome {
	l.inFlight = slices.DeleteFunc(l.inFlight, func(other int64) bool { return other == id })
	switch e {
	case noEvidence:
		return breaker.Ignored
	case hostUp:
		l.failed, l.reason = nil, ""
		return breaker.Success
	}
	l.reason = reason
	if len(l.failed) == 0 {
		l.since = now
	}
	if slices.Contains(l.failed, id) && !probe {
		return breaker.Ignored
	}
	if !l.isDown() && !slices.Contains(l.failed, id) {
		l.failed = append(l.failed, id)
	}
	return breaker.Failure
}

// laneHeap is a heap of lanes, the states of hosts, by the time at which their next attempt is due.
// If several lanes have the same due time, the one that was not visited for the longest time comes
// first.
type laneHeap []*lane

// Len implements heap.Interface.
func (h laneHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h laneHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].visited < h[j].visited
	}
	return h[i].due.Before(h[j].due)
}

// Swap implements heap.Interface.
func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *laneHeap) Push(x any) {
	l := x.(*lane)
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *laneHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.index = -1
	return l
}

// schedule sets the due time of a lane. If the lane is not in the heap, schedule adds it.
func (h *laneHeap) schedule(l *lane, due time.Time) {
	l.due = due
	if l.index >= 0 {
		heap.Fix(h, l.index)
		return
	}
	heap.Push(h, l)
}

// remove removes the lane from the heap.
func (h *laneHeap) remove(l *lane) {
	if l.index >= 0 {
		heap.Remove(h, l.index)
	}
}
