package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// maxAnswer bounds an answer's line, in bytes: one that refuses every record of a large batch, with
// reasons, fits.
const maxAnswer = 8 << 20

// ndjsonLane hands batches to the child in a slot.
type ndjsonLane struct {
	sink *Sink
	slot *child.Slot[*talk]
}

// talk is the talk with one child. Its Serve reads; batches are written by those who deliver them.
type talk struct {
	p     *child.Process
	turn  chan struct{} // holds one: it is who writes
	ended chan struct{} // closed by End

	start  uint32       // which of the sink's children it is, from 1: the epoch of its credit
	grants *atomic.Bool // the sink's

	mu     sync.Mutex // guards what follows
	asked  []*asked   // written, or being written, and not answered; in this order
	worked bool
	known  bool  // the cause of the end is known: the oldest batch is not to blame
	err    error // of the end
	clean  bool  // it ended by itself after an answer: no batch is to blame

	sent, taken uint64        // records since its start: written; answered for
	credit      uint64        // the most that it will have been sent, as it said last
	granted     bool          // it has said a credit, or one before it has
	told        chan struct{} // closed with each answer, and made anew
}

// asked is a batch that a child has.
type asked struct {
	id     uint64
	cost   uint64      // records
	answer chan answer // holds one
	taken  uint64      // when it was answered: of the talk, this batch included
	blamed bool        // when the child died it was the oldest: the one that the child was at
}

func (s *Sink) newTalk(p *child.Process) *talk {
	return &talk{
		p: p, start: max(1, s.starts.Add(1)), turn: make(chan struct{}, 1), ended: make(chan struct{}), told: make(chan struct{}),
		grants: &s.grants, granted: s.grants.Load(),
	}
}

// Serve implements child.Session.
func (t *talk) Serve(context.Context) error { return child.ServeLines(t.p, maxAnswer, t.take) }

// take hands an answer to who waits for it; an empty line is none.
func (t *talk) take(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	a, err := parseAnswer(line)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := 0
	if a.ID != nil {
		at = slices.IndexFunc(t.asked, func(q *asked) bool { return q.id == *a.ID })
	}
	if at < 0 || at >= len(t.asked) {
		return fmt.Errorf("its answer %q is about a batch that it does not have", child.Quoted(line))
	}
	q := t.asked[at]
	t.asked = slices.Delete(t.asked, at, at+1)
	t.worked = true
	t.taken += q.cost
	q.taken = t.taken
	if a.Credit != nil {
		t.credit, t.granted = *a.Credit, true
		t.grants.Store(true)
	}
	close(t.told)
	t.told = make(chan struct{})
	q.answer <- a
	return nil
}

// room waits until the child has credit for q. One that has nothing in hand gets it in any case:
// else nobody would hear when it has room again. The caller has the turn. An error means that
// nothing was said.
func (t *talk) room(ctx context.Context, q *asked) error {
	for {
		t.mu.Lock()
		if !t.granted || len(t.asked) == 0 || t.sent+q.cost <= t.credit {
			t.sent += q.cost
			t.asked = append(t.asked, q)
			t.mu.Unlock()
			return nil
		}
		told := t.told
		t.mu.Unlock()
		select {
		case <-told:
		case <-t.ended:
			return t.died(ctx, q)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// End implements child.Session.
func (t *talk) End(err error) {
	t.mu.Lock()
	t.err = err
	t.clean = t.worked && child.EndedCleanly(err)
	if len(t.asked) > 0 && !t.known && !t.clean {
		t.asked[0].blamed = true
	}
	t.mu.Unlock()
	close(t.ended)
}

// Did implements child.Session.
func (t *talk) Did() (worked, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.worked, len(t.asked) > 0
}

// Deliver implements stream.Worker.
func (l *ndjsonLane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	if b.Kept() == 0 {
		return stream.Report{}, nil
	}
	scratch := l.sink.scratch.Get().(*[]byte)
	defer l.sink.scratch.Put(scratch)
	data, err := l.sink.bodyOf(b, scratch)
	if err != nil {
		return stream.Report{}, err
	}
	t, err := awaited(ctx, l.slot)
	if err != nil {
		return stream.Report{}, err
	}
	q := &asked{id: a.ID, cost: uint64(max(1, b.Kept())), answer: make(chan answer, 1)}
	if err := t.ask(ctx, q, appendHead(nil, a.ID, a.Number, b), data); err != nil {
		return stream.Report{}, err
	}
	select {
	case said := <-q.answer:
		return l.answered(t, q, b, said)
	case <-t.ended:
		select {
		case said := <-q.answer: // its last words
			return l.answered(t, q, b, said)
		default:
		}
		return stream.Report{}, t.died(ctx, q)
	case <-ctx.Done():
		return stream.Report{}, t.abandon(ctx)
	}
}

// startPatience is how long an attempt waits for a child that is about to start again.
const startPatience = time.Second

// awaited waits for the first start of a child, and for one that is about to start again; where
// that takes longer flow knows better what to do meanwhile.
func awaited[S child.Session](ctx context.Context, slot *child.Slot[S]) (S, error) {
	var none S
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	session, err := slot.Session()
	if e, ok := errors.AsType[*child.DownError](err); ok && e.Next <= child.Soon {
		soon, cancel := ctx, context.CancelFunc(func() {})
		if e.Err != nil {
			soon, cancel = context.WithTimeout(ctx, startPatience)
		}
		session, err = slot.Await(soon)
		cancel()
	}
	if err != nil {
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		return none, down(err)
	}
	return session, nil
}

// ask writes a batch's line. A child that is told half of one is killed.
func (t *talk) ask(ctx context.Context, q *asked, head, data []byte) error {
	select {
	case t.turn <- struct{}{}:
	case <-t.ended:
		return t.died(ctx, q)
	case <-ctx.Done():
		return context.Cause(ctx) // nothing was said
	}
	if err := t.room(ctx, q); err != nil {
		<-t.turn
		return err
	}
	err := t.p.Write(ctx, head)
	if err == nil {
		err = t.p.Write(ctx, data)
	}
	if err != nil && ctx.Err() != nil {
		err = t.abandon(ctx)
	} else if err != nil {
		// It has died, or closed its input and will never read a batch again. Its end says what of.
		t.p.Kill(err)
		<-t.ended
		err = t.died(ctx, q)
	}
	<-t.turn
	return err
}

// abandon kills the child, which hangs, and says of whom that was the fault.
func (t *talk) abandon(ctx context.Context) error {
	cause := context.Cause(ctx)
	t.mu.Lock()
	t.known = true
	t.mu.Unlock()
	t.p.Kill(cause)
	if errors.Is(cause, stream.ErrAbandoned) {
		return &stream.Died{Err: cause}
	}
	return cause
}

// died is the outcome of a batch that the child had when it died.
func (t *talk) died(ctx context.Context, q *asked) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case q.blamed:
		return &stream.Died{Err: t.err}
	case t.clean:
		return &stream.Throttled{After: child.Soon, Err: t.err}
	}
	return t.err
}

// answered turns an answer into the outcome. A child that says what cannot be is killed, for this
// batch.
func (l *ndjsonLane) answered(t *talk, q *asked, b *stream.Batch, said answer) (stream.Report, error) {
	outcome, misuse := said.outcome(b)
	if misuse != nil {
		t.mu.Lock()
		t.known = true
		t.mu.Unlock()
		t.p.Kill(misuse)
		<-t.ended // so that the next batch does not get this child
		return stream.Report{}, &stream.Died{Err: misuse}
	}
	return said.report(t.start, q.taken), outcome
}
