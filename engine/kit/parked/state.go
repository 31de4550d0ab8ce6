//penstock:pure

package parked

import (
	"fmt"
	"slices"
	"time"
)

// State is the state of a delivery. Its numeric values are stored.
type State uint8

// The states of a delivery.
const (
	Waiting   State = iota // waits for its due time
	Done                   // accepted by the receiver
	Dead                   // its last attempt failed, or a refusal was final
	Cancelled              // cancelled by an operator
	InFlight               // an attempt is running; only in memory: the store has Waiting
	Exhausted              // the last attempt failed; kept for an operator
)

var stateNames = [...]string{"waiting", "done", "dead", "cancelled", "in_flight", "exhausted"}

// String returns the name of the state, as `penstock parked` prints it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", s)
}

// ParseState returns the state of a name.
func ParseState(name string) (State, error) {
	if i := slices.Index(stateNames[:], name); i >= 0 {
		return State(i), nil
	}
	return 0, fmt.Errorf("%q is not a state; the states are %v", name, stateNames)
}

// Ended reports whether nothing more happens to a delivery in this state.
func (s State) Ended() bool { return s == Done || s == Dead || s == Cancelled }

// Event is something that happens to a delivery and may change its state.
type Event uint8

// The events of a delivery.
const (
	Begin   Event = iota // an attempt starts
	Accept               // the receiver accepted it
	Refuse               // the receiver did not accept it, or there was no response
	Stop                 // final refusal: 410, `stop:` is true, or its operation has failed
	Abort                // the attempt was interrupted, e.g. by a shutdown: it does not count
	Skip                 // its planned time passed without an attempt
	Retry                // an operator asks for an attempt now
	Cancel               // an operator ends it
	Start                // the receiver works on it (202); its operation is polled from now on
	Pending              // the operation has not ended, or the poll failed
	NoEvent              // the number of events
)

var eventNames = [...]string{
	"begin", "accept", "refuse", "stop", "abort", "skip", "retry", "cancel", "start", "pending",
}

// String returns the name of the event.
func (e Event) String() string {
	if e < NoEvent {
		return eventNames[e]
	}
	return fmt.Sprintf("event %d", e)
}

// transitions maps each state and event to the next state. An event that is missing for a state is
// refused. For a Refuse or Pending after the last attempt or poll, the next state is Dead or
// Exhausted instead; see Schedule.Keep.
var transitions = map[State]map[Event]State{
	Waiting: {Begin: InFlight, Skip: Waiting, Retry: Waiting, Cancel: Cancelled},
	InFlight: {
		Accept: Done, Refuse: Waiting, Stop: Dead, Abort: Waiting, Cancel: Cancelled,
		Start: Waiting, Pending: Waiting,
	},
	Exhausted: {Retry: Waiting, Cancel: Cancelled},
}

// Progress is the part of a delivery that events change.
type Progress struct {
	ID        int64
	State     State
	Attempt   int       // number of the next attempt, or of the one in flight, counted from 0
	Forced    bool      // an operator has asked for the next attempt or poll
	Start     time.Time // planned time of attempt 0
	Due       time.Time // of the next attempt or poll
	Operation Operation // the operation that is polled; zero if there is none
}

// Operation is work on a delivery that a receiver has accepted and does asynchronously.
type Operation struct {
	Location string    // absolute URL that is polled; "" means that there is no operation
	Host     string    // host:port of Location
	Accepted time.Time // when the receiver accepted it
	Polls    int       // number of polls so far, not counting those that an operator asked for
	Found    string    // result of the last poll
}

// Polled reports whether the delivery has an asynchronous operation that is polled.
func (p *Progress) Polled() bool { return p.Operation.Location != "" }

// TransitionError means that a state does not allow an event.
type TransitionError struct {
	State State
	Event Event
}

// Error names the event and the state.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%v is not possible: the delivery is %v", e.Event, e.State)
}

// Next returns the progress after an event at time now. retryAfter is the wait that the receiver
// has asked for. It can delay the next attempt, at most until the planned time of the last attempt.
// It can also delay the next poll, at most until the time limit of the operation. With an error,
// Next returns p. For the event Start use [Progress.Started].
func (p Progress) Next(
	s Schedule, e Event, now time.Time, retryAfter time.Duration,
) (Progress, error) {
	next, ok := transitions[p.State][e]
	misplaced := e == Start || e == Pending && !p.Polled() || e == Refuse && p.Polled()
	if !ok || misplaced {
		return p, &TransitionError{p.State, e}
	}
	if e == Skip && p.IsLast(s) {
		return p, fmt.Errorf(
			"attempt %d is the last of the schedule, which is always sent", p.Attempt+1,
		)
	}
	p.State = next
	switch e {
	case Retry:
		p.Forced, p.Due = true, now
	case Skip:
		if p.Polled() {
			p.Due = p.nextPoll(s, now, retryAfter)
			break
		}
		p.Attempt++
		p.Due = p.planned(s)
	case Refuse:
		return p.refused(s, now, retryAfter), nil
	case Pending:
		return p.pending(s, now, retryAfter), nil
	}
	return p, nil
}

// Started returns the progress after the receiver has accepted an asynchronous operation at time
// now.
func (p Progress) Started(
	s Schedule, o Operation, now time.Time, retryAfter time.Duration,
) (Progress, error) {
	if p.State != InFlight || p.Polled() || o.Location == "" {
		return p, &TransitionError{p.State, Start}
	}
	o.Accepted, o.Polls = now, 0
	p.State, p.Forced, p.Operation = Waiting, false, o
	p.Due = p.nextPoll(s, now, retryAfter)
	return p, nil
}

// refused returns the progress after an attempt that was not accepted.
func (p Progress) refused(s Schedule, now time.Time, retryAfter time.Duration) Progress {
	forced := p.Forced
	p.Forced = false
	switch {
	case p.Attempt >= s.Attempts() || !forced && s.isLast(p.Attempt):
		p.Attempt = s.Attempts()
		p.State = s.end()
		return p
	case !forced: // a forced attempt does not advance the schedule
		p.Attempt++
	}
	p.Due = p.planned(s)
	if last := p.Start.Add(s.Planned(p.ID, s.Attempts())); retryAfter > 0 && p.Due.Before(last) {
		p.Due = later(p.Due, earlier(now.Add(retryAfter), last))
	}
	return p
}

// pending returns the progress after a poll that did not end the operation.
func (p Progress) pending(s Schedule, now time.Time, retryAfter time.Duration) Progress {
	if !p.Forced {
		p.Operation.Polls++
	}
	p.Forced = false
	if p.Operation.Polls >= len(s.Polling.Waits) || !now.Before(p.pollsEnd(s)) {
		p.State = s.end()
		return p
	}
	p.Due = p.nextPoll(s, now, retryAfter)
	return p
}

// nextPoll returns the time of the next poll, but not later than the end of the operation's time
// limit. The parameter now is the current time.
func (p Progress) nextPoll(s Schedule, now time.Time, retryAfter time.Duration) time.Time {
	wait := retryAfter
	if n := p.Operation.Polls; n < len(s.Polling.Waits) {
		wait = max(wait, s.Polling.Waits[n])
	}
	return earlier(now.Add(wait), p.pollsEnd(s))
}

func (p Progress) pollsEnd(s Schedule) time.Time { return p.Operation.Accepted.Add(s.Polling.Max) }

func (p Progress) planned(s Schedule) time.Time { return p.Start.Add(s.Planned(p.ID, p.Attempt)) }

// IsLast reports whether the next attempt of the delivery is the last of the schedule. If the
// operation of the delivery is polled, IsLast reports whether the next poll is the last one.
func (p Progress) IsLast(s Schedule) bool {
	if p.Polled() {
		return p.Operation.Polls+1 >= len(s.Polling.Waits) || !p.Due.Before(p.pollsEnd(s))
	}
	return s.isLast(p.Attempt)
}

// Overtaken returns the number of attempts that are skipped at time now. An attempt is skipped if
// the attempt after it has been due for at least grace. Set grace to the time that one attempt may
// take, so that a slow attempt only delays the next one.
//
// Example: attempts are planned at 0s, 15s, 30s and 60s, and grace is 10s. If the process is down
// from 5s to 45s, it skips the attempt of 15s and makes the attempt of 30s.
//
// Overtaken never counts the first attempt. It counts no polls either, because their waits count
// from the preceding poll.
func (p Progress) Overtaken(s Schedule, now time.Time, grace time.Duration) int {
	if p.Forced || p.State != Waiting || p.Polled() || p.Attempt == 0 {
		return 0
	}
	n := 0
	for !s.isLast(p.Attempt+n) && !p.Start.Add(s.Planned(p.ID, p.Attempt+n+1)).Add(grace).After(now) {
		n++
	}
	return n
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
