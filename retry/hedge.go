package retry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// HedgePolicy says when Hedge asks once more. The zero value never waits: it asks twice at once.
type HedgePolicy struct {
	// Delay is how long the attempts so far may go unanswered before another one begins beside them: best the 95th
	// percentile of the latency, which makes a twentieth of the calls ask twice. 0 or less: all begin at once.
	Delay time.Duration
	// Max limits the attempts, the first included; 0 means 2.
	Max int
	// Budget limits the attempts after the first, as those of a retry; nil: no such limit. What it refuses is left out.
	Budget Budget
	// Classify says which failures end the whole: those with the action Fail. nil: those marked Permanent.
	Classify Classifier
	// Key is found in the attempts' contexts, as Retrier.Key.
	Key string
	// Wait makes Hedge return only when every attempt has: for operations that use what the caller lends them.
	// Otherwise an attempt that lost may run on until it notices that its context has ended.
	Wait bool
}

// ErrHedged is the cause that ends the context of an attempt that was not needed.
var ErrHedged = errors.New("retry: another attempt has answered")

// Hedge runs op, and again beside it whenever Delay has passed without an answer, and returns the first success; the
// contexts of the others end. An attempt that fails is replaced at once, or after the wait that its server asked for.
// The operation must bear being done twice at the same time. discard, if it is not nil, gets the results of attempts
// that succeeded too late, on their own goroutines, and closes what has to be closed.
//
// Each attempt has a goroutine of its own, which ends with the attempt; there are at most Max. A panic of an attempt
// becomes the panic of Hedge while Hedge waits, and is let through afterwards.
func Hedge[T any](ctx context.Context, op func(context.Context) (T, error), h HedgePolicy, discard func(T)) (T, error) {
	var zero T
	if h.Max <= 0 {
		h.Max = 2
	}
	all, cancel := context.WithCancelCause(ctx)
	h.Delay = max(h.Delay, 0)
	r := race[T]{policy: h, op: op, discard: discard, mark: begins(all, h.Key), begun: time.Now(), answers: make(chan answer[T], h.Max)}
	r.mark.hedge = true // it is new, as its context is: nobody else has it yet
	defer cancel(ErrHedged)
	v, stop := r.run(ctx)
	// From here on nobody takes an answer: attempts that still succeed discard theirs. One may have succeeded at the
	// same moment as the stop; its answer is on the way, and the better end.
	if !r.taken.CompareAndSwap(false, true) && stop != nil {
		v, stop = r.winner(), nil
	}
	cancel(ErrHedged)
	for h.Wait && r.running > 0 {
		<-r.answers
		r.running--
	}
	if stop != nil {
		e := &Error{Stop: stop, Attempts: r.started, Elapsed: time.Since(r.begun), After: r.after, Errs: r.failures.list()}
		if len(e.Errs) > 0 {
			e.Last = e.Errs[len(e.Errs)-1]
		}
		return zero, e
	}
	return v, nil
}

// answer is what an attempt has come to.
type answer[T any] struct {
	value    T
	err      error
	panicked any
}

// errGoexit is the failure of an attempt whose function ended its goroutine (runtime.Goexit, a test's FailNow).
var errGoexit = errors.New("retry: the operation ended its goroutine")

// race is one Hedge. Its fields belong to Hedge's goroutine, apart from answers and taken.
type race[T any] struct {
	policy   HedgePolicy
	op       func(context.Context) (T, error)
	discard  func(T)
	mark     *mark // of the attempt that starts next
	begun    time.Time
	started  int
	running  int
	refused  bool // by the budget: no further attempts
	failures failures
	after    time.Duration
	answers  chan answer[T] // has room for all: no attempt ever blocks on it
	taken    atomic.Bool    // the answer that counts has been chosen
}

// run starts attempts and waits for the first success.
func (r *race[T]) run(ctx context.Context) (v T, stop error) {
	if stop = ended(ctx); stop != nil {
		return v, stop
	}
	r.start()
	for r.policy.Delay == 0 && r.start() {
	}
	timer := time.NewTimer(r.policy.Delay)
	defer timer.Stop()
	for r.running > 0 || !r.refused && r.started < r.policy.Max {
		due := timer.C
		if r.refused || r.started >= r.policy.Max {
			due = nil
		}
		select {
		case a := <-r.answers:
			r.running--
			if a.panicked != nil {
				panic(a.panicked)
			}
			if a.err == nil {
				return a.value, nil
			}
			wait, stop := r.failed(a.err)
			if stop == nil {
				stop = ended(ctx)
			}
			if stop != nil {
				return v, stop
			}
			timer.Reset(wait)
		case <-due:
			r.start()
			timer.Reset(r.policy.Delay)
		case <-ctx.Done():
			return v, ended(ctx)
		}
	}
	if r.refused {
		return v, ErrBudget
	}
	return v, ErrExhausted
}

// winner waits for the answer of the attempt that has succeeded.
func (r *race[T]) winner() T {
	for {
		a := <-r.answers
		r.running--
		if a.err == nil && a.panicked == nil {
			return a.value
		}
	}
}

// failed decides about a failure: the wait before the attempt that replaces it, or the end.
func (r *race[T]) failed(err error) (wait time.Duration, stop error) {
	r.failures.add(err)
	d := (&Retrier{Classify: r.policy.Classify}).classify(err, r.started)
	switch {
	case d.Action == Fail:
		return 0, ErrPermanent
	case d.After > DefaultHint:
		r.after = d.After
		return 0, ErrHint
	}
	return max(d.After, 0), nil
}

// start begins one more attempt, if one may.
func (r *race[T]) start() bool {
	if r.refused || r.started >= r.policy.Max {
		return false
	}
	if b := r.policy.Budget; b != nil && !b.Take(r.started+1, 0) {
		r.refused = true
		return false
	}
	mark := r.mark
	r.mark = mark.following(0)
	r.started++
	r.running++
	go r.attempt(mark)
	return true
}

// attempt is an attempt's goroutine. It sends exactly one answer.
func (r *race[T]) attempt(ctx *mark) {
	a := answer[T]{err: errGoexit}
	defer func() {
		if p := recover(); p != nil {
			if r.taken.Load() {
				panic(p) // Hedge has returned: as any panic of a goroutine
			}
			a.panicked = fmt.Sprintf("retry: attempt %d of a hedge panicked: %v\n%s", ctx.number, p, debug.Stack())
		}
		res := Failed
		switch {
		case a.err != nil || a.panicked != nil:
			if r.taken.Load() {
				res = NotMade // it ended because it was not needed
			}
		case r.taken.CompareAndSwap(false, true):
			res = Served
		default:
			if a.err = ErrHedged; r.discard != nil {
				r.discard(a.value)
			}
			res = Served
		}
		if b := r.policy.Budget; b != nil {
			b.Give(ctx.number, 0, res)
		}
		r.answers <- a
	}()
	a.value, a.err = r.op(ctx)
}
