package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/child/multilang"
	"github.com/penstock-io/penstock/stream"
)

// boltInFlight is the number of in-flight batches of a bolt. It is two, so that the bolt can begin
// the next batch while its last answers for the previous batch are under way.
const boltInFlight = 2

// boltLane delivers each record as a tuple to the bolt in one slot.
type boltLane struct {
	sink *Sink
	slot *child.Slot[*multilang.Bolt]
}

// newBolt returns a function that creates the session with a newly started child.
func (s *Sink) newBolt(pipeline string) func(p *child.Process) *multilang.Bolt {
	conf := make(map[string]any, len(s.o.Conf))
	for name, value := range s.o.Conf {
		conf[name] = value
	}
	o := multilang.Options{
		Handshake: multilang.NewHandshake(s.pids, pipeline, "exec", []string{"message"}, conf),
		Component: pipeline, Task: multilang.SourceTask, Pending: s.o.Pending,
		Timeout: s.o.Timeout, Log: s.host.Log(), Count: s.host.Count,
	}
	return func(p *child.Process) *multilang.Bolt { return multilang.NewBolt(p, o) }
}

// Deliver implements stream.Worker. A batch is delivered when the bolt has acked every record. The
// sink only counts the tuples that the bolt emits.
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

// outcome returns the outcome of a batch. Acked records are delivered. Failed and unanswered
// records are sent again.
func (l *boltLane) outcome(ctx context.Context, b *stream.Batch, kept []int,
	work *multilang.Work) error {
	fates := make([]recordResult, len(kept))
	acked, failed := 0, 0
	for n := range kept {
		switch {
		case work.Acked[n]:
			acked++
		case work.Failed[n]:
			failed++
			fates[n] = again
		default:
			fates[n] = again
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
	switch {
	case blame && len(kept) == 1:
		return &stream.Died{Err: err}
	case !blame && acked == 0 && child.EndedCleanly(err):
		return &stream.Throttled{After: child.Soon, Err: err}
	case !blame && acked == 0:
		return err
	}
	if blame {
		fates[work.Blamed] = refused // in a piece of its own, which is sent again
	}
	split := shareOut(b, kept, fates)
	if blame {
		split.Rest, split.Refused, split.Died = append(split.Refused, split.Rest...), nil, 1
		err = &stream.Died{Err: err}
	}
	split.Err = err
	return split
}
