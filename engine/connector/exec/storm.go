package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/child/multilang"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// boltInFlight is the number of in-flight batches of a bolt. With two, the bolt can begin the next
// batch while its last answers for the previous batch are on their way.
const boltInFlight = 2

// boltLane delivers each record as a tuple to the bolt in one slot.
type boltLane struct {
	sink *Sink
	slot *child.Slot[*multilang.Bolt]
}

// newBolt returns a function that creates the session with a newly started child.
func (s *Sink) newBolt(pipeline string) func(p *child.Process) *multilang.Bolt {
	o := multilang.Options{
		Handshake: multilang.NewHandshake(s.pids, pipeline, s.o.Conf),
		Component: pipeline, Task: multilang.SourceTask, Pending: s.o.Pending,
		Timeout: s.o.Timeout, Log: s.host.Log(), Count: s.host.Count,
	}
	return func(p *child.Process) *multilang.Bolt { return multilang.NewBolt(p, o) }
}

// Deliver implements stream.Worker. A batch is delivered when the bolt has acked every record.
// Tuples that the bolt emits are counted and discarded.
func (l *boltLane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	if b.Kept() == 0 {
		return stream.Report{}, nil
	}
	bolt, err := awaited(ctx, l.slot)
	if err == nil {
		err = bolt.Ready(ctx)
	}
	if err != nil {
		return stream.Report{}, err
	}
	kept := b.AppendKept(nil)
	work, err := bolt.Do(ctx, b, kept)
	if work.Err == nil {
		work.Err = err
	}
	return stream.Report{}, l.outcome(ctx, b, kept, work)
}

// Verdicts of a tuple that the bolt did not ack.
var (
	errAgain  = errors.New("the tuple is sent again")
	errBlamed = errors.New("the bolt has probably died because of the tuple")
)

// outcome returns the outcome of a batch. Acked records are delivered. Failed and unanswered
// records are sent again. If one of several records made from the same source record is sent
// again, all of them are. A record that is blamed for the death of the bolt is sent again in a
// piece of its own.
func (l *boltLane) outcome(ctx context.Context, b *stream.Batch, kept []int,
	work *multilang.Work) error {
	errs := make([]error, len(kept))
	acked, failed := 0, 0
	for n := range kept {
		if work.Acked[n] {
			acked++
			continue
		}
		errs[n] = errAgain
		if work.Failed[n] {
			failed++
		}
	}
	if acked == len(kept) {
		return nil
	}
	err := work.Err
	if err == nil {
		err = fmt.Errorf("the bolt failed %d of %d tuples", failed, len(kept))
	}
	cause := context.Cause(ctx)
	blame := work.Blamed >= 0 && (cause == nil || errors.Is(cause, stream.ErrAbandoned))
	if blame {
		errs[work.Blamed], err = errBlamed, &stream.Died{Err: err}
	}
	const blamed = verdict.Full // worse than Again, so that it decides for the whole source record
	records := verdict.Group(b, kept, errs, func(err error) verdict.Verdict {
		switch err {
		case nil:
			return verdict.Accepted
		case errBlamed:
			return blamed
		}
		return verdict.Again
	}).Records
	done, again, suspects := records[verdict.Accepted], records[verdict.Again], records[blamed]
	switch {
	case !blame && len(done) == 0 && child.EndedCleanly(err):
		return &stream.Throttled{After: child.Soon, Err: err}
	case !blame && len(done) == 0, len(suspects) == len(kept):
		return err
	}
	split := &stream.Split{Err: err}
	if len(done) > 0 {
		split.Done = append(split.Done, stream.Piece(b.Pick(done)))
	}
	if blame { // the suspects are in a piece of their own
		split.Rest, split.Died = append(split.Rest, stream.Piece(b.Pick(suspects))), 1
	}
	if len(again) > 0 {
		split.Rest = append(split.Rest, stream.Piece(b.Pick(again)))
	}
	return split
}
