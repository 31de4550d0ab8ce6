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
	downAfter  = 3                      // consecutive deliveries without a response or with a 5xx
	firstProbe = 15 * time.Second       // wait before the first probe of a down host; doubles up to
	lastProbe  = 30 * time.Minute       // at most 60 probes a day
	slowAfter  = time.Second            // a longer attempt makes its host slow
	longAfter  = 300 * time.Millisecond // a longer attempt takes an extra place
)

// lane is a host with deliveries that are due, in flight, or due later. The dispatcher owns it. Its
// circuit is nil before the first failure.
type lane struct {
	id       int64
	name     string
	group    string    // pattern of allow.hosts that allows the host; "" if listed by name
	due      time.Time // time of the earliest delivery that may be sent
	index    int       // index in the heap, or -1
	visited  uint64    // number of the last visit: among due lanes, the lowest comes first
	inFlight []int64   // ids of deliveries
	window   *limit.Limiter
	circuit  *breaker.Circuit
	failed   []int64       // deliveries of the current run of failures
	since    time.Time     // start of that run
	reason   string        // of the last failure
	slow     bool          // the last attempt failed or was slow, or one in flight is slow
	full     bool          // the last visit found more due deliveries than it could send
	absent   absence       // why the lane is not in the heap, even if it has due deliveries
	paced    time.Duration // state of the host's rate limit
	opens    time.Time     // when the rate limit allows the next request; zero if it does now
}

// absence is the reason why the dispatcher leaves a lane out of the heap.
type absence uint8

const (
	present   absence = iota // the lane is in the heap if a visit is scheduled
	held                     // slow hosts have used up their share of the attempts
	recording                // skipped planned times are being stored
)

func newLane(h parked.Host) *lane { return &lane{id: h.ID, name: h.Name, due: h.Due, index: -1} }

// newCircuit returns the circuit of a lane. It opens after consecutive failures of different
// deliveries. Failures of a single delivery never open it, because that delivery must keep its
// exact schedule.
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

// isDown reports whether the host gets only probes and last attempts.
func (l *lane) isDown() bool { return l.circuit != nil && l.circuit.State() != breaker.Closed }

// allow reports whether the circuit lets an attempt through. If it does, the caller must call
// settle afterwards. now is the time since the epoch of circuits and rate limits.
func (l *lane) allow(now time.Duration) (breaker.Ticket, bool) {
	if l.circuit == nil {
		return breaker.Ticket{}, true // the ticket of a new circuit
	}
	return l.circuit.Allow(now)
}

// settle reports the outcome of an attempt to the circuit. It creates the circuit at the first
// failure.
func (l *lane) settle(now time.Duration, t breaker.Ticket, o breaker.Outcome) {
	if l.circuit == nil {
		if o != breaker.Failure {
			return
		}
		l.circuit = newCircuit()
	}
	l.circuit.Done(now, t, o, 0)
}

// isIdle reports whether a new lane could replace this one without a loss of state. It ignores the
// field slow.
func (l *lane) isIdle(now time.Duration) bool {
	return len(l.inFlight) == 0 && len(l.failed) == 0 && !l.isDown() && l.paced <= now
}

// isResting reports whether the lane has nothing to do at the given time, so that it can be deleted
// to make room for another host. since is the same time relative to the epoch of rate limits.
func (l *lane) isResting(now time.Time, since time.Duration) bool {
	return len(l.inFlight) == 0 && l.absent == present && l.paced <= since &&
		(l.index < 0 || l.due.After(now))
}

// worth ranks resting lanes by the state that is lost if the lane is deleted.
func (l *lane) worth() (n int) {
	if l.index >= 0 {
		n++
	}
	if l.slow || len(l.failed) > 0 || l.circuit != nil {
		n += 2
	}
	return n
}

// attempt is an in-flight attempt.
type attempt struct {
	lane  *lane
	begun time.Time
	speed speed
}

// speed classifies in-flight attempts by their age.
//
//	event                                quick   long   slow
//	in flight for over longAfter         long    -      -
//	in flight for over slowAfter         -       slow   -
type speed uint8

const (
	quickAttempt speed = iota // of a host that is not known to be slow
	longAttempt
	slowAttempt // of a slow host
)

// attemptSlots counts the in-flight attempts. Attempts that take long move to extra places, so that
// hosts that respond quickly keep the places of quick attempts. Slow hosts get new attempts up to
// their share.
//
//	attempts 256:  | quick attempts; others only while no extra place is free |
//	extra 192:     | long and slow attempts; at slow hosts at most 64 begin   |
type attemptSlots struct {
	attempts, share, extra int
	slow                   int        // slow attempts
	recent                 []*attempt // quick and long attempts, oldest first
	long                   int        // the number of long ones, which are the first of recent
}

func newAttemptSlots(attempts int) attemptSlots {
	return attemptSlots{attempts: attempts, share: max(1, attempts/4), extra: attempts * 3 / 4}
}

// isFull reports whether no host may get a further attempt.
func (p *attemptSlots) isFull() bool {
	return p.busy()-min(p.extra, p.slow+p.long) >= p.attempts
}

// isFullFor reports whether a lane may not get a further attempt.
func (p *attemptSlots) isFullFor(l *lane) bool { return l.slow && p.slow >= p.share || p.isFull() }

// busy returns the number of in-flight attempts.
func (p *attemptSlots) busy() int { return p.slow + len(p.recent) }

// begin records the start of an attempt.
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

// age changes the speed of attempts that have become older, and marks the hosts of slow ones as
// slow. So a silent host is slow long before its first attempt times out.
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

// untilAged returns the time until age may change the speed of an attempt.
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

// end records the end of an attempt.
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

// end records the end of an attempt and returns its outcome for the circuit. A delivery counts only
// once in a run of failures, unless the attempt was a probe.
func (l *lane) end(id int64, down, probe bool, reason string, now time.Time) breaker.Outcome {
	l.inFlight = slices.DeleteFunc(l.inFlight, func(other int64) bool { return other == id })
	if !down {
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
	if len(l.failed) < downAfter && !slices.Contains(l.failed, id) {
		l.failed = append(l.failed, id)
	}
	return breaker.Failure
}

// laneHeap orders the lanes by due time. Among lanes with the same due time, the least recently
// visited one comes first.
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

// schedule sets the due time of a lane, and adds the lane to the heap if it is not there.
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
