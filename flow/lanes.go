package flow

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Every goroutine of a Sender starts in this file: one producer, one undertaker, and a runner for each attempt
// in flight. Run is their owner: it ends them by context or by closing their channel, and waits for crew.

// maxIdleRunners is how many runners wait for their next attempt; further ones end.
const maxIdleRunners = 1024

// lane is a Lane as the loop knows it. The loop owns it.
type lane[T any] struct {
	Lane[T]
	number  int32
	up      bool // takes attempts; else it only waits for those that run
	running int
	again   *Lane[T] // Ordered: comes back as this when nothing of it runs, so that its order has one owner at a time
}

// attempt is one Deliver. The loop owns it, but for the runner between its start and its answer.
type attempt[T any] struct {
	Attempt[T]
	item   *held[T]
	lane   *lane[T]
	worker Worker[T] // of the lane when the attempt started
	ctx    context.Context
	cancel context.CancelCauseFunc

	runner  *runner[T]
	exited  bool // the worker has ended the runner's goroutine
	report  Report
	err     error
	outcome control.Outcome
	at      time.Duration

	ended      error         // why the loop ended the context; nil: it did not
	abandon    time.Duration // when it will
	prev, next *attempt[T]   // in the list of those that run
}

// runner delivers one attempt after the other.
type runner[T any] struct {
	work chan *attempt[T] // holds one: the loop never blocks on an idle runner
}

// crew starts runners and counts every goroutine of the sender. The loop owns it.
type crew[T any] struct {
	all     sync.WaitGroup
	runners map[*runner[T]]struct{} // those that run
	idle    []*runner[T]
}

// deliver hands a to an idle runner, the last used first, or to a new one. The last used may be the one that turns: it takes a
// when it has done so, and nobody is woken.
func (c *crew[T]) deliver(a *attempt[T], l *loop[T]) {
	if n := len(c.idle); n > 0 {
		r := c.idle[n-1]
		a.runner = r
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		r.work <- a
		return
	}
	r := &runner[T]{work: make(chan *attempt[T], 1)}
	if c.runners == nil {
		c.runners = make(map[*runner[T]]struct{})
	}
	c.runners[r] = struct{}{}
	a.runner = r
	r.work <- a
	c.all.Add(1)
	go c.run(r, l)
}

// rest takes back a runner whose answer has been read.
func (c *crew[T]) rest(r *runner[T], ended bool) {
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

// dismiss ends the runners when they have answered, and waits until no goroutine is left.
func (c *crew[T]) dismiss() {
	for r := range c.runners {
		close(r.work)
	}
	c.runners, c.idle = nil, nil
	c.all.Wait()
}

func (c *crew[T]) run(r *runner[T], l *loop[T]) {
	defer c.all.Done()
	for a := range r.work {
		a.deliver(l.box)
		l.attend()
	}
}

// deliver runs the attempt and answers it, also when the worker panics or ends the goroutine.
func (a *attempt[T]) deliver(box *mailbox[T]) {
	returned := false
	defer func() {
		if !returned {
			v := recover()
			a.exited = v == nil // runtime.Goexit: this goroutine will take no more
			a.report, a.err = Report{}, caught(fmt.Sprintf("worker %q", a.lane.Name), v)
			defer box.ring()
		}
		a.cancel(nil)
		a.outcome = outcomeOf[T](a.err)
		box.answer(a)
	}()
	a.report, a.err = a.worker.Deliver(a.ctx, a.Attempt)
	returned = true
}

func caught(where string, v any) *PanicError {
	return &PanicError{Where: where, Value: v, Stack: debug.Stack()}
}

// produce starts the goroutine that asks p for one item each time it is told to, until ask is closed or p ends.
func (c *crew[T]) produce(p Producer[T], l *loop[T]) {
	c.all.Add(1)
	go func() {
		defer c.all.Done()
		for range l.ask {
			err := produceOne(l.base, p, l.box)
			l.attend()
			if err != nil {
				return
			}
		}
	}()
}

func produceOne[T any](ctx context.Context, p Producer[T], box *mailbox[T]) (err error) {
	var it Item[T]
	returned := false
	defer func() {
		if !returned {
			err = caught("producer", recover())
			defer box.ring() // it may be runtime.Goexit: then this goroutine does not turn
		}
		box.putOffer(it, err)
	}()
	it, err = p.Next(ctx)
	returned = true
	return err
}

// undertake starts the goroutine that buries one item after the other until queue is closed.
func (c *crew[T]) undertake(queue <-chan *held[T], l *loop[T]) {
	c.all.Add(1)
	go func() {
		defer c.all.Done()
		for h := range queue {
			buryOne(l.base, l.o.Bury, h, l.box)
			l.attend()
		}
	}()
}

func buryOne[T any](ctx context.Context, bury func(context.Context, Item[T], error) error, h *held[T], box *mailbox[T]) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = caught("Options.Bury", recover())
			defer box.ring()
		}
		box.putBuried(h, err)
	}()
	err = bury(ctx, h.Item, h.refusal)
	returned = true
}
