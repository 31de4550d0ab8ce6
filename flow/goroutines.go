package flow

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// All goroutines of a Sender start in this file: one for the producer, one for Options.DeadLetter,
// two for Options.Waiting, and a runner for each attempt in flight. (An Inline lane needs none.)
// Run owns them: it ends them through their context or channel, and waits for them.

// maxIdleRunners bounds the goroutines (runners) that wait for an attempt to deliver. Further idle
// runners end.
const maxIdleRunners = 1024

// lane is the loop's state of a Lane.
type lane[T any] struct {
	Lane[T]
	number  int32
	up      bool // takes attempts; otherwise the lane only waits for its running ones
	running int
	fault   error // error of its last attempt, if the outcome was Misconfigured
	// replacement replaces an Ordered lane that is down, once the running attempts of the lane have
	// returned. So no attempt of the new lane takes effect before one of the old lane.
	replacement *Lane[T]
}

// attempt is one call of Deliver. The goroutine that calls Deliver owns it during the call, and the
// loop otherwise.
type attempt[T any] struct {
	Attempt[T]
	item   *heldItem[T]
	lane   *lane[T]
	worker Worker[T] // worker of the lane when the attempt started
	ctx    context.Context
	cancel context.CancelCauseFunc

	runner     *runner[T]
	exited     bool // the worker called runtime.Goexit, which ended the runner
	report     Report
	err        error
	outcome    control.Outcome
	returnedAt time.Duration

	ended      error         // the cause with which the loop has ended the context, or nil
	abandon    time.Duration // when the loop will end the context
	prev, next *attempt[T]   // in the list of running attempts
}

// runner delivers one attempt after another.
type runner[T any] struct {
	work chan *attempt[T] // holds one: the loop never blocks on an idle runner
}

// goroutines starts the goroutines of the sender and counts them. The loop owns it.
type goroutines[T any] struct {
	running sync.WaitGroup
	runners map[*runner[T]]struct{} // not ended
	idle    []*runner[T]
}

// deliver passes attempt a to the goroutine (runner) that became idle last, or to a new one. This
// runner may be the one that runs the loop at the moment. It then delivers the attempt after the
// loop, without a switch between goroutines.
func (c *goroutines[T]) deliver(a *attempt[T], l *loop[T]) {
	if n := len(c.idle); n > 0 {
		r := c.idle[n-1]
		a.runner = r
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		r.work <- a
		return
	}
	r := &runner[T]{work: make(chan *attempt[T], 1)}
	c.runners[r] = struct{}{}
	a.runner = r
	r.work <- a
	c.running.Go(func() {
		for a := range r.work {
			a.deliver(l.events)
			l.runLoop()
		}
	})
}

// returnRunner takes back a runner after its attempt was handled.
func (c *goroutines[T]) returnRunner(r *runner[T], ended bool) {
	switch {
	case ended:
		delete(c.runners, r)
	case len(c.idle) >= maxIdleRunners:
		delete(c.runners, r)
		close(r.work)
	default:
		c.idle = append(c.idle, r)
	}
}

// stop ends the runners after their attempts, and waits until no goroutine is left.
func (c *goroutines[T]) stop() {
	for r := range c.runners {
		close(r.work)
	}
	c.runners, c.idle = nil, nil
	c.running.Wait()
}

// deliver runs the attempt and reports its result, even if the worker panics or calls
// runtime.Goexit.
func (a *attempt[T]) deliver(events *eventQueue[T]) {
	returned := false
	defer func() {
		if !returned {
			v := recover()
			a.exited = v == nil // runtime.Goexit: this goroutine is ending
			a.report, a.err = Report{}, caught(fmt.Sprintf("worker %q", a.lane.Name), v)
			defer events.wakeRun()
		}
		a.cancel(nil)
		a.outcome = outcomeOf[T](a.err)
		events.answer(a)
	}()
	a.report, a.err = a.worker.Deliver(a.ctx, a.Attempt)
	returned = true
}

func caught(where string, v any) *PanicError {
	return &PanicError{Where: where, Value: v, Stack: debug.Stack()}
}

// call calls f, and then report with the error of f. If f panics or calls runtime.Goexit, the error
// is a *PanicError. This goroutine then cannot run the loop, so call wakes the goroutine of Run.
func (l *loop[T]) call(where string, f func() error, report func(error)) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = caught(where, recover())
			defer l.events.wakeRun()
		}
		report(err)
	}()
	err = f()
	returned = true
}

// produce starts the goroutine that calls p.Next once per request, until ask is closed or p ends.
func (c *goroutines[T]) produce(p Producer[T], l *loop[T]) {
	c.running.Go(func() {
		var ended error
		for range l.ask {
			var it Item[T]
			l.call("producer", func() (err error) {
				it, err = p.Next(l.base)
				return err
			}, func(err error) {
				ended = err
				l.events.put(func(m *pendingEvents[T]) {
					m.offer, m.offered, m.ended = it, err == nil, err
				})
			})
			l.runLoop()
			if ended != nil {
				return
			}
		}
	})
}

// fetchDeferred starts the goroutine that calls WaitStore.Next once for each request, until ask is
// closed.
func (c *goroutines[T]) fetchDeferred(l *loop[T], ask <-chan context.Context, i int) {
	c.running.Go(func() {
		for ctx := range ask {
			var r nextResult[T]
			l.call("Options.Waiting", func() (err error) {
				r.item, r.history, err = l.o.Waiting.Next(ctx, i == suspects)
				return err
			}, func(err error) {
				r.err = err
				l.events.put(func(m *pendingEvents[T]) { m.returned[i] = &r })
			})
			l.runLoop()
		}
	})
}

// writeDeadLetters starts the goroutine that calls Options.DeadLetter for each item of queue.
func (c *goroutines[T]) writeDeadLetters(queue <-chan *heldItem[T], l *loop[T]) {
	c.running.Go(func() {
		for h := range queue {
			l.call("Options.DeadLetter", func() error {
				return l.o.DeadLetter(l.base, h.Item, h.refusal)
			}, func(err error) {
				l.events.put(func(m *pendingEvents[T]) { m.deadLettered, m.deadLetterErr = h, err })
			})
			l.runLoop()
		}
	})
}
