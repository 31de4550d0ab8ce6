//penstock:pure

package retry

import (
	"cmp"
	"errors"
	"time"
)

// Action is what to do about a failure.
type Action uint8

// What to do about a failure.
const (
	Undecided Action = iota // no opinion: the next classifier decides, in the end Retry
	Retry                   // wait and try again
	Fail                    // give up: trying again cannot help, or may do harm
	Failover                // try the next of Retrier.Targets
	Refresh                 // call Retrier.Refresh, then try again
)

// String names the action as the documentation does.
func (a Action) String() string {
	switch a {
	case Undecided:
		return "undecided"
	case Retry:
		return "retry"
	case Fail:
		return "fail"
	case Failover:
		return "failover"
	case Refresh:
		return "refresh"
	}
	return "unknown action"
}

// Decision is a classifier's answer. The zero value is no opinion.
type Decision struct {
	Action Action
	// After is the least wait before the next attempt, as a server's hint; 0 means none. Negative means a hint of
	// no wait, which matters to HintLimit's mode Instead only.
	After time.Duration
	// Cost is what a retry takes from the Budget; 0 means the budget's own price. AWS takes 5, and 10 for a timeout.
	Cost int
	// Reset says that the attempt got something done before it failed (a stream that ran for hours): waits, attempts
	// and MaxFailing start anew.
	Reset bool
}

// Classifier says what to do about err, the failure of the given attempt (from 1). It is called with errors that are
// not nil and must be safe for concurrent use.
type Classifier func(err error, attempt int) Decision

// Chain asks the classifiers in order; the first that has decided on an action wins. nil ones are passed over.
func Chain(all ...Classifier) Classifier {
	if len(all) == 1 {
		return all[0]
	}
	return func(err error, attempt int) Decision {
		for _, c := range all {
			if c == nil {
				continue
			}
			if d := c(err, attempt); d.Action != Undecided {
				return d
			}
		}
		return Decision{}
	}
}

// On decides on a for errors that are one of targets, as errors.Is sees it: causes at any depth count.
func On(a Action, targets ...error) Classifier {
	return func(err error, _ int) Decision {
		for _, t := range targets {
			if errors.Is(err, t) {
				return Decision{Action: a}
			}
		}
		return Decision{}
	}
}

// OnType decides on a for errors of type E, as errors.AsType sees it: causes at any depth count.
func OnType[E error](a Action) Classifier {
	return func(err error, _ int) Decision {
		if _, ok := errors.AsType[E](err); ok {
			return Decision{Action: a}
		}
		return Decision{}
	}
}

// Only retries what one of the classifiers wants to be retried or led elsewhere; everything else fails.
func Only(all ...Classifier) Classifier {
	return Chain(append(all[:len(all):len(all)], func(error, int) Decision { return Decision{Action: Fail} })...)
}

// note is an error with an instruction for the retry around it.
type note struct {
	cause     error
	after     time.Duration
	permanent bool
}

// Error implements error with the cause's text: the note is for the machine.
func (n *note) Error() string { return n.cause.Error() }

// Unwrap returns the cause.
func (n *note) Unwrap() error { return n.cause }

// Permanent marks err so that no retry around it tries again, whatever their classifiers say. The mark is found at any
// depth of a chain of causes. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &note{cause: err, permanent: true}
}

// After asks that the next attempt begin no sooner than d from now, bounded by Retrier.Hint. After(d, nil) is nil.
func After(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	if d <= 0 {
		d = -1
	}
	return &note{cause: err, after: d}
}

// hinted is an error that knows how long its server wants to be left alone; 0 means it did not say.
type hinted interface {
	error
	RetryAfter() time.Duration
}

// inspect reads err and its causes in one walk, as it is done for every failure: whether one of them is marked as
// permanent, and the first hint of a wait. Of a retry that gave up inside, only the last failure speaks: the hints of
// earlier ones are past.
func inspect(err error) (permanent bool, after time.Duration) {
	for err != nil {
		switch e := err.(type) {
		case *note:
			if e.permanent {
				return true, after
			}
			after, err = cmp.Or(after, e.after), e.cause
			continue
		case *Error:
			err = e.Last
			continue
		case hinted:
			after = cmp.Or(after, e.RetryAfter())
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			continue
		case interface{ Unwrap() []error }:
			for _, cause := range e.Unwrap() {
				final, hint := inspect(cause)
				if final {
					return true, after
				}
				after = cmp.Or(after, hint)
			}
		}
		break
	}
	return false, after
}

// classify decides about the failure of an attempt.
func (r *Retrier) classify(err error, attempt int) Decision {
	permanent, after := inspect(err)
	if permanent {
		return Decision{Action: Fail}
	}
	var d Decision
	if r.Classify != nil {
		d = r.Classify(err, attempt)
	}
	if d.Action == Undecided {
		d.Action = Retry
	}
	if d.Action == Refresh && r.Refresh == nil {
		d.Action = Fail
	}
	if d.After == 0 {
		d.After = after
	}
	return d
}
