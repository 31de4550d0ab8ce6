package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// maxAnswer is the maximum length of an answer's line in bytes. It is enough for an answer that
// refuses every record of a large batch, with reasons.
const maxAnswer = 8 << 20

// ndjsonLane delivers batches to the child in one slot.
type ndjsonLane struct {
	sink *Sink
	slot *child.Slot[*session]
}

// session is the conversation with one child. One goroutine reads (Serve). The goroutines that call
// Deliver write.
type session struct {
	p       *child.Process
	writing chan struct{} // token of the goroutine that may write to the child
	ended   chan struct{} // closed by End

	// number of this child among all children that the sink has started, from 1; it is the epoch of
	// the child's credit
	start uint32

	mu      sync.Mutex      // guards the fields below
	pending []*pendingBatch // unanswered batches, in the order in which they were written
	worked  bool
	known   bool  // Deliver has killed the child and reports the cause: End blames no batch
	err     error // error with which the child has ended
	clean   bool  // the child ended by itself and had answered a batch before: no batch is to blame

	sent, answered uint64        // records written to this child; records that it has answered
	credit         uint64        // bound on sent, as last stated by the child
	granted        bool          // the child has stated a credit
	told           chan struct{} // closed and replaced at each answer
}

// pendingBatch is a batch that was given to a child and is not answered.
type pendingBatch struct {
	id       uint64
	cost     uint64      // number of records
	answer   chan answer // buffer of 1
	answered uint64      // session.answered at the time of its answer, including this batch
	blamed   bool        // it was the oldest batch when the child died
}

func (s *Sink) newSession(p *child.Process) *session {
	return &session{
		p: p, start: max(1, s.starts.Add(1)), writing: make(chan struct{}, 1),
		ended: make(chan struct{}), told: make(chan struct{}),
	}
}

// Serve implements child.Session. It reads the answers of the child until the child ends.
func (t *session) Serve(context.Context) error {
	return child.ServeLines(t.p, maxAnswer, t.handleLine)
}

// handleLine parses a line of the child's output. It passes the answer to the Deliver call that
// waits for it. Empty lines are ignored.
func (t *session) handleLine(line []byte) error {
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
		at = slices.IndexFunc(t.pending, func(q *pendingBatch) bool { return q.id == *a.ID })
	}
	if at < 0 || at >= len(t.pending) {
		return fmt.Errorf("its response %q is about a batch that it does not have",
			child.Quoted(line))
	}
	q := t.pending[at]
	t.pending = slices.Delete(t.pending, at, at+1)
	t.worked = true
	t.answered += q.cost
	q.answered = t.answered
	if a.Credit != nil {
		t.credit, t.granted = *a.Credit, true
	}
	close(t.told)
	t.told = make(chan struct{})
	q.answer <- a
	return nil
}

// awaitCredit waits until q fits into the child's credit, which is the total number of records that
// the child has allowed so far. It then adds q to the unanswered batches. Before its first answer,
// the child gets only one batch, because a credit may follow. If the first answers have no credit,
// awaitCredit does not wait. It never waits if all batches are answered: the child states a new
// credit only in an answer, so waiting for one would never end.
//
// The caller must hold the token of t.writing. After an error, nothing was written.
func (t *session) awaitCredit(ctx context.Context, q *pendingBatch) error {
	for {
		t.mu.Lock()
		fits := t.worked && (!t.granted || t.sent+q.cost <= t.credit)
		if fits || len(t.pending) == 0 {
			t.sent += q.cost
			t.pending = append(t.pending, q)
			t.mu.Unlock()
			return nil
		}
		told := t.told
		t.mu.Unlock()
		select {
		case <-told:
		case <-t.ended:
			return t.deathOutcome(ctx, q)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// End implements child.Session. It ends all waits for answers. Normally the oldest unanswered batch
// is blamed for the death of the child. There are two exceptions. If Deliver has killed the child
// because an attempt was canceled or the child broke the protocol, Deliver itself reports the
// cause. If the child has answered a batch before, and has then ended by itself without an error,
// no batch is blamed.
func (t *session) End(err error) {
	t.mu.Lock()
	t.err = err
	t.clean = t.worked && child.EndedCleanly(err)
	if len(t.pending) > 0 && !t.known && !t.clean {
		t.pending[0].blamed = true
	}
	t.mu.Unlock()
	close(t.ended)
}

// Did implements child.Session. It reports whether the child has answered a batch, and whether
// batches are unanswered.
func (t *session) Did() (worked, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.worked, len(t.pending) > 0
}

// Deliver implements stream.Worker. It sends the batch to the child and waits for the answer.
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
	q := &pendingBatch{id: a.ID, cost: uint64(max(1, b.Kept())), answer: make(chan answer, 1)}
	if err := t.send(ctx, q, appendHead(nil, a.ID, a.Number, b), data); err != nil {
		return stream.Report{}, err
	}
	select {
	case said := <-q.answer:
		return l.answered(t, q, b, said)
	case <-t.ended:
		select {
		case said := <-q.answer: // the child has answered just before its end
			return l.answered(t, q, b, said)
		default:
		}
		return stream.Report{}, t.deathOutcome(ctx, q)
	case <-ctx.Done():
		return stream.Report{}, t.killAbandoned(ctx)
	}
}

// startPatience bounds the wait of an attempt for a child that should be restarting now.
const startPatience = time.Second

// awaited returns the session with the child in the slot (the place of one worker). If the child
// has never been started, or if its restart is due now, awaited waits for the start. If the restart
// is due later, awaited returns an error at once, because package flow can use other workers
// meanwhile.
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

// send writes the line of a batch to the child. If a write fails, it kills the child.
func (t *session) send(ctx context.Context, q *pendingBatch, head, data []byte) error {
	select {
	case t.writing <- struct{}{}:
	case <-t.ended:
		return t.deathOutcome(ctx, q)
	case <-ctx.Done():
		return context.Cause(ctx) // nothing was written
	}
	if err := t.awaitCredit(ctx, q); err != nil {
		<-t.writing
		return err
	}
	err := t.p.Write(ctx, head)
	if err == nil {
		err = t.p.Write(ctx, data)
	}
	if err != nil && ctx.Err() != nil {
		err = t.killAbandoned(ctx)
	} else if err != nil {
		// The child has died, or has closed its input and will not read any more batches. Its exit
		// status will tell the reason.
		t.p.Kill(err)
		<-t.ended
		err = t.deathOutcome(ctx, q)
	}
	<-t.writing
	return err
}

// kill kills the child for a reason that the caller reports, so that End blames no batch.
func (t *session) kill(cause error) {
	t.mu.Lock()
	t.known = true
	t.mu.Unlock()
	t.p.Kill(cause)
}

// killAbandoned kills the child because the attempt to deliver a batch has ended before the child
// has answered. It returns the outcome of the batch.
func (t *session) killAbandoned(ctx context.Context) error {
	cause := context.Cause(ctx)
	t.kill(cause)
	if errors.Is(cause, stream.ErrAbandoned) {
		return &stream.Died{Err: cause}
	}
	return cause
}

// deathOutcome returns the outcome of a batch that the child had not answered when it died.
func (t *session) deathOutcome(ctx context.Context, q *pendingBatch) error {
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

// answered returns the outcome of a batch, given the child's answer. If the answer breaks the
// protocol, answered kills the child, and the outcome counts against the batch.
func (l *ndjsonLane) answered(t *session, q *pendingBatch, b *stream.Batch,
	said answer) (stream.Report, error) {
	outcome, misuse := said.outcome(b)
	if misuse != nil {
		t.kill(misuse)
		<-t.ended // so that the next batch does not get this child
		return stream.Report{}, &stream.Died{Err: misuse}
	}
	return said.report(t.start, q.answered), outcome
}
