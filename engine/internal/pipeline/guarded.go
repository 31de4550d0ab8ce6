package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
)

// guardPauses are the minimum waits before the restart of a route that the guard has stopped
// because of too many dead letters. They grow with each stop: 1 s, 4 s, 16 s, up to 10 minutes.
// This is for the case of a wrong config and an input that grows, such as a log: with short waits,
// frequent restarts would turn many of its records into dead letters.
var guardPauses = backoff.Exponential(time.Second, 4, 10*time.Minute)

// guardForgets is the running time after which a route counts as healthy. If the guard stops a
// route that has run for longer than this, the wait before the restart is again the shortest one of
// guardPauses.
const guardForgets = time.Hour

// inputPoll is the interval at which the input is checked for changes after the wait.
const inputPoll = 2 * time.Second

// inputChanges is called after a run of r has ended with err. If the guard stopped r because of too
// many dead letters, inputChanges waits until the input of r has changed, and returns true. It
// returns false at once if the guard did not stop r, if the source cannot watch its input, or if
// the run is finite. It also returns false if r drains or ctx ends during the wait.
func (s *slot) inputChanges(ctx context.Context, r *route, err error, pause *backoff.State) bool {
	if _, guarded := errors.AsType[*deadletter.GuardError](err); !guarded || s.o.Once {
		return false
	}
	reader, failed := s.pipe.source.Open(ctx, stream.OpenOptions{
		Route: r.key, Resume: r.saver.markOf, Known: r.saver.known(), Count: func(string, int64) {},
	})
	if failed != nil {
		s.log.Warn("the input of a stopped route cannot be watched", "error", failed)
		return false
	}
	defer func() { _ = reader.Close() }() // nothing was read
	input, ok := reader.(stream.InputReader)
	if !ok {
		return false
	}
	before, failed := input.Input()
	if failed != nil {
		s.log.Warn("the input of a stopped route cannot be watched", "error", failed)
		return false
	}
	s.log.Error("route stopped; it starts again when its input changes", "error", err)
	if time.Since(r.started) > guardForgets {
		*pause = backoff.State{}
	}
	wait, next, _ := guardPauses.Next(*pause, nil)
	*pause = next
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-r.drained:
			return false
		case <-timer.C:
		}
		if now, err := input.Input(); err == nil && now != before {
			return true
		}
		timer.Reset(inputPoll)
	}
}
