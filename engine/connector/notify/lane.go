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
	downAfter  = 3                // deliveries in a row that got no response or a 5xx
	firstProbe = 15 * time.Second // of a host that is down; doubling to
	lastProbe  = 30 * time.Minute // at most 60 probes a day
	slowAfter  = time.Second      // an attempt that takes longer makes its host slow
)

// lane is one host with deliveries that are due, in flight, or will be due. The dispatcher owns it.
// Its circuit is nil before the first failure.
type lane struct {
	id       int64
	name     string
	group    string    // pattern of allow.hosts that allows the host; "" if it is listed by name
	due      time.Time // of its earliest delivery that may be sent
	index    int       // in the heap; -1 if it is in none
	visited  uint64    // number of its last visit: lanes that are due take turns
	inFlight []int64   // ids of deliveries
	window   *limit.Limiter
	circuit  *breaker.Circuit
	failed   []int64       // deliveries of the present row of failures
	since    time.Time     // of that row
	reason   string        // of the last failure
	slow     bool          // its last attempt failed or took long, or one in flight does
	full     bool          // at its last visit deliveries were due for which it had no room
	absent   absence       // why the lane is not in the heap although it may have due deliveries
	paced    time.Duration // state of the host's rate limit
	opens    time.Time     // when the rate limit allows a request; zero if it did
}

// absence is the reason for which the dispatcher leaves a lane out of the heap.
type absence uint8

const (
	present   absence = iota // the lane is in the heap if a visit is scheduled
	held                     // slow hosts have their share of the attempts
	recording                // planned times that pass are being stored
)

func newLane(h parked.Host) *lane { return &lane{id: h.ID, name: h.Name, due: h.Due, index: -1} }

// newCircuit returns the circuit of a lane. Failures in a row of different deliveries open it: one
// delivery alone keeps its exact schedule.
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

// isDown reports whether only probes and last attempts are sent to the host.
func (l *lane) isDown() bool { return l.circuit != nil && l.circuit.State() != breaker.Closed }

// allow lets an attempt through, which must be followed by settle, or refuses it. now is the time
// since the origin of circuits and rate limits.
func (l *lane) allow(now time.Duration) (breaker.Ticket, bool) {
	if l.circuit == nil {
		return breaker.Ticket{}, true // that of a new circuit
	}
	return l.circuit.Allow(now)
}

// settle takes the outcome of an attempt that was let through into the circuit, which it makes at
// the first failure.
func (l *lane) settle(now time.Duration, t breaker.Ticket, o breaker.Outcome) {
	if l.circuit == nil {
		if o != breaker.Failure {
			return
		}
		l.circuit = newCircuit()
	}
	l.circuit.Done(now, t, o, 0)
}

// isIdle reports whether the lane knows nothing that a new one would not, except that its host is
// slow.
func (l *lane) isIdle(now time.Duration) bool {
	return len(l.inFlight) == 0 && len(l.failed) == 0 && !l.isDown() && l.paced <= now
}

// isResting reports whether the lane has nothing to do at now, so that it can be deleted to make
// room for another host. since is now as the time since the origin of rate limits.
func (l *lane) isResting(now time.Time, since time.Duration) bool {
	return len(l.inFlight) == 0 && l.absent == present && l.paced <= since &&
		(l.index < 0 || l.due.After(now))
}

// worth ranks resting lanes: how much is lost if the lane is deleted.
func (l *lane) worth() (n int) {
	if l.index >= 0 {
		n++
	}
	if l.slow || len(l.failed) > 0 || l.circuit != nil {
		n += 2
	}
	return n
}

// attempt is an attempt in flight.
type attempt struct {
	lane  *lane
	begun time.Time
	slow  bool // it counts in the share of slow hosts
}

// places counts the attempts in flight. Slow hosts have a share of them. When hosts turn out to be
// slow faster than their share becomes free, attempts beyond the share take extra places, so that
// hosts that respond keep theirs.
//
//	attempts 256:  | fast and unknown hosts, at least 192 | slow hosts, at most 64 |
//	extra 128:     | attempts that turned out to be slow while those 64 were taken |
type places struct {
	attempts, share, extra int
	slow                   int        // attempts in flight at slow hosts
	young                  []*attempt // the others, oldest first; at most attempts
}

func newPlaces(attempts int) places {
	return places{attempts: attempts, share: max(1, attempts/4), extra: attempts / 2}
}

// isFull reports whether no host gets a further attempt.
func (p *places) isFull() bool {
	beyond := min(p.extra, max(0, p.slow-p.share))
	return len(p.young)+p.slow-beyond >= p.attempts
}

// isFullFor reports whether a lane gets no further attempt.
func (p *places) isFullFor(l *lane) bool { return l.slow && p.slow >= p.share || p.isFull() }

// busy returns the number of attempts in flight.
func (p *places) busy() int { return p.slow + len(p.young) }

// begin notes the beginning of an attempt.
func (p *places) begin(l *lane, now time.Time) *attempt {
	a := &attempt{lane: l, begun: now, slow: l.slow}
	if a.slow {
		p.slow++
	} else {
		p.young = append(p.young, a)
	}
	return a
}

// age makes the hosts slow that have had an attempt in flight for longer than slowAfter. A silent
// host is thus slow long before its first attempt times out.
func (p *places) age(now time.Time) {
	n := 0
	for n < len(p.young) && now.Sub(p.young[n].begun) > slowAfter {
		p.young[n].slow, p.young[n].lane.slow = true, true
		n++
	}
	p.young = slices.Delete(p.young, 0, n)
	p.slow += n
}

// untilAged returns how long no attempt turns slow.
func (p *places) untilAged(now time.Time) time.Duration {
	if len(p.young) == 0 {
		return time.Hour
	}
	return max(0, p.young[0].begun.Add(slowAfter+time.Millisecond).Sub(now))
}

// end notes the end of an attempt.
func (p *places) end(a *attempt) {
	if a.slow {
		p.slow--
		return
	}
	p.young = slices.DeleteFunc(p.young, func(other *attempt) bool { return other == a })
}

// end notes the end of an attempt. It returns the outcome that counts for the circuit: a delivery
// counts once in a row of failures, unless it was the probe.
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

// laneHeap has the lanes by due time; of lanes that are due at the same time, the one that was
// visited longest ago comes first.
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

// schedule puts the lane into the heap, or moves it, for a due time.
func (h *laneHeap) schedule(l *lane, due time.Time) {
	l.due = due
	if l.index >= 0 {
		heap.Fix(h, l.index)
		return
	}
	heap.Push(h, l)
}

// remove takes the lane out of the heap.
func (h *laneHeap) remove(l *lane) {
	if l.index >= 0 {
		heap.Remove(h, l.index)
	}
}
