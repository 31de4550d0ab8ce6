//penstock:pure

package breaker

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/recent"
)

// State is the state of a circuit.
//
//	from      to        when
//	Closed    Open      Failures or FailureRate (of the Options) is reached
//	Open      HalfOpen  the wait is over and Allow is called
//	HalfOpen  Closed    as many calls as Probes have succeeded
//	HalfOpen  Open      a probe failed, or all running probes have run for ProbeTimeout
type State uint8

// The states.
const (
	Closed   State = iota // calls pass
	Open                  // calls are refused
	HalfOpen              // a few calls pass, to see whether the server is back
)

var stateNames = [...]string{"closed", "open", "half-open"}

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Outcome is the result of a call with regard to the server's health.
type Outcome uint8

// Outcomes of a call.
const (
	Success Outcome = iota
	Failure
	Ignored // unrelated to the server's health, such as a canceled call
)

var outcomeNames = [...]string{"success", "failure", "ignored"}

// String returns "success", "failure" or "ignored".
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Options configures a Breaker or a Circuit. The zero value works.
type Options struct {
	// Failures is the number of failures in a row that opens the breaker. Zero means 5. A negative
	// value means that failures in a row do not open it.
	Failures int

	// FailureRate is the share of failed calls, at most 1, that opens the breaker. It is computed
	// over the time Window. Zero means 0.5. A negative value means that the share does not open it.
	FailureRate float64
	Window      time.Duration // Zero means 10s.
	MinCalls    int           // Below it, FailureRate is not checked. Zero means 20.

	// Wait is the policy for the time that the breaker stays open. Each failed probe leads to the
	// next wait of the policy. When the breaker has been closed for as long as the last wait, the
	// policy starts over. Example: the last wait was 30 s. If the breaker opens again within 30 s
	// after it has closed, the next wait follows. If it opens later, the first wait follows.
	//
	// Nil means 500ms, doubling to 30s, with equal jitter: each wait is drawn between half of that
	// time and the whole. If the policy gives up, the breaker repeats the last wait.
	Wait backoff.Policy

	// Probes is the number of calls that a half-open breaker lets through. They may run at the same
	// time. When all have succeeded, the breaker closes. Zero means 1.
	Probes int

	// ProbeTimeout bounds how long a probe that does not return can block other calls. After this
	// time, the breaker opens again. Zero means 1 minute.
	ProbeTimeout time.Duration

	// MaxHint bounds the time for which an error with a method RetryAfter can keep the breaker
	// open. Zero means 5 minutes. A Circuit does not use it.
	MaxHint time.Duration

	// Outcome judges the errors of calls. Nil means [OutcomeOf]. A Circuit does not use it.
	Outcome func(error) Outcome

	// OnChange is called after each change of state, in order and one call at a time. It runs on
	// the goroutine of a caller of the breaker, without the breaker's lock. A Circuit does not use
	// it.
	OnChange func(Change)
}

const (
	defaultFailures     = 5
	defaultRate         = 0.5
	defaultWindow       = 10 * time.Second
	defaultMinCalls     = 20
	defaultProbes       = 1
	defaultProbeTimeout = time.Minute
	defaultMaxHint      = 5 * time.Minute
)

var defaultWait = backoff.Exponential(500*time.Millisecond, 2, 30*time.Second).Equal()

// Validate returns an error that names the invalid option.
func (o Options) Validate() error {
	switch {
	case !(o.FailureRate <= 1):
		return fmt.Errorf("breaker: FailureRate is %v, want at most 1", o.FailureRate)
	case o.Window < 0:
		return fmt.Errorf("breaker: Window is %v, want 0 or more", o.Window)
	case o.MinCalls < 0:
		return fmt.Errorf("breaker: MinCalls is %d, want 0 or more", o.MinCalls)
	case o.Probes < 0:
		return fmt.Errorf("breaker: Probes is %d, want 0 or more", o.Probes)
	case o.ProbeTimeout < 0:
		return fmt.Errorf("breaker: ProbeTimeout is %v, want 0 or more", o.ProbeTimeout)
	case o.MaxHint < 0:
		return fmt.Errorf("breaker: MaxHint is %v, want 0 or more", o.MaxHint)
	case o.Failures < 0 && o.FailureRate < 0:
		return errors.New("breaker: Failures and FailureRate are both negative, want one of them " +
			"to open the breaker")
	}
	if err := backoff.Validate(o.Wait); err != nil {
		return fmt.Errorf("breaker: Wait: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Failures == 0 {
		o.Failures = defaultFailures
	}
	if o.FailureRate == 0 {
		o.FailureRate = defaultRate
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.MinCalls == 0 {
		o.MinCalls = defaultMinCalls
	}
	if o.Wait == nil {
		o.Wait = defaultWait
	}
	if o.Probes == 0 {
		o.Probes = defaultProbes
	}
	if o.ProbeTimeout == 0 {
		o.ProbeTimeout = defaultProbeTimeout
	}
	return o
}

// Circuit is the state machine of a breaker, for programs that have an event loop. It reads no
// clock: the caller passes the time in, as the time since some origin. The time must not decrease.
// A Circuit allocates nothing and is not safe for concurrent use. Make one with [NewCircuit]:
// Allow of a zero Circuit panics.
type Circuit struct {
	options Options
	random  rand.Source
	state   State
	epoch   uint32 // grows with each change of state; earlier calls no longer count
	streak  int    // failures in a row
	recent  recent.Window

	waits     backoff.State
	wait      time.Duration // length of the wait that began when it last opened
	until     time.Duration // end of the wait
	closed    time.Duration // when it last closed
	probing   int           // running probes
	succeeded int           // probes that succeeded
	probed    time.Duration // when the last probe started
}

// NewCircuit returns a closed circuit. The source random draws the jitter of waits. Nil means the
// runtime's source.
func NewCircuit(o Options, random rand.Source) (*Circuit, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	return &Circuit{options: o, random: random, recent: recent.New(o.Window)}, nil
}

// Ticket identifies one call that Allow let through, for Done.
type Ticket struct{ epoch uint32 }

// Allow lets a call through or refuses it. The caller must call Done for each call let through.
func (c *Circuit) Allow(now time.Duration) (Ticket, bool) {
	if c.options.Wait == nil {
		panic("breaker: zero Circuit; make one with breaker.NewCircuit")
	}
	if c.state == Open && now >= c.until {
		c.enter(HalfOpen)
	}
	if c.state == HalfOpen {
		if c.probing > 0 && now-c.probed >= c.options.ProbeTimeout {
			c.open(now, 0)
		}
		if c.state == Open || c.probing+c.succeeded >= c.options.Probes {
			return Ticket{}, false
		}
		c.probing++
		c.probed = now
	}
	return Ticket{c.epoch}, c.state != Open
}

// Done ends a call that Allow let through. The parameter least is a minimum wait, such as a
// server's Retry-After: if the failure of the call opens the circuit, it stays open for at least
// that time. Zero means no minimum.
func (c *Circuit) Done(now time.Duration, t Ticket, o Outcome, least time.Duration) {
	if t.epoch != c.epoch || c.state == Open {
		return
	}
	switch {
	case c.state == HalfOpen:
		c.endProbe(now, o, least)
	case o == Success:
		c.streak = 0
		c.recent.Add(now, calls, 1)
	case o == Failure:
		c.streak++
		c.recent.Add(now, calls, 1)
		c.recent.Add(now, failures, 1)
		if c.isFailing(now) {
			if now-c.closed >= c.wait {
				c.waits = backoff.State{}
			}
			c.open(now, least)
		}
	}
}

// isFailing reports whether a closed circuit must open.
func (c *Circuit) isFailing(now time.Duration) bool {
	o := &c.options
	if o.Failures > 0 && c.streak >= o.Failures {
		return true
	}
	seen := c.recent.Sums(now)
	return o.FailureRate > 0 && seen[calls] >= int64(o.MinCalls) &&
		float64(seen[failures]) >= o.FailureRate*float64(seen[calls])
}

func (c *Circuit) endProbe(now time.Duration, o Outcome, least time.Duration) {
	c.probing--
	switch o {
	case Success:
		if c.succeeded++; c.succeeded >= c.options.Probes {
			c.enter(Closed)
			c.closed = now
		}
	case Failure:
		c.open(now, least)
	default: // another call may probe
	}
}

func (c *Circuit) open(now, least time.Duration) {
	d, next, ok := c.options.Wait.Next(c.waits, c.random)
	if !ok {
		d = c.waits.Prev
	}
	c.waits = next
	c.enter(Open)
	c.wait = max(d, least, 0)
	if c.until = now + c.wait; c.until < now {
		c.until = math.MaxInt64
	}
}

func (c *Circuit) enter(s State) {
	c.state = s
	c.epoch++
	c.streak, c.probing, c.succeeded = 0, 0, 0
	c.recent.Clear()
}

// State returns the state. An open circuit becomes half-open at the first Allow after its wait, not
// when the wait ends.
func (c *Circuit) State() State { return c.state }

// Wait returns the time for which calls will be refused. It returns zero if a call may pass now, or
// if that depends on running probes.
func (c *Circuit) Wait(now time.Duration) time.Duration {
	if c.state != Open {
		return 0
	}
	return max(0, c.until-now)
}

// The counts of Circuit.recent.
const (
	calls = iota
	failures
)
