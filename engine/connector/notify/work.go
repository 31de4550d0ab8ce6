package notify

import (
	"context"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// work makes attempts until ctx ends. In-flight attempts may then take up to stopGrace to end. An
// error means that the result of an attempt could not be stored. The route is then restarted, and
// the attempt is made again.
func (s *sender) work(ctx context.Context) error {
	defer func() {
		if s.workers.Add(-1) == 0 {
			close(s.rested)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-s.jobs:
			e, err := s.perform(ctx, j)
			if err != nil {
				return endOf(ctx, err)
			}
			s.ended <- e // never blocks: has room for all
		}
	}
}

// perform makes an attempt or a poll, and stores its result.
func (s *sender) perform(ctx context.Context, j job) (ended, error) {
	out := ended{job: j}
	schedule := j.delivery.Schedule(s.sink.o.schedule)
	begun, err := j.delivery.Progress.Next(schedule, parked.Begin, time.Now(), 0)
	if err != nil {
		return out, err
	}
	attempt, cancel := context.WithTimeout(s.attempts, s.sink.o.Timeout)
	defer cancel()
	out.result = s.sink.attempt(attempt, j.delivery)
	if out.progress, err = out.result.apply(begun, schedule, time.Now()); err != nil {
		return out, err
	}
	defer func() { s.count(&out) }()
	kept := context.WithoutCancel(ctx)
	if out.progress.State == parked.Dead && out.result.event != parked.Stop {
		if schedule.Keep, err = s.store.Retried(kept, j.delivery); err != nil {
			return out, err
		}
		if schedule.Keep { // Record makes the retry due
			out.progress, _ = out.result.apply(begun, schedule, time.Now()) // succeeded before
		}
	}
	if out.result.event == parked.Abort {
		return out, nil // the attempt does not count: the delivery is due again
	}
	if out.progress.State == parked.Dead {
		if err := s.sink.deadLetter(kept, j.delivery, out.result.entry); err != nil {
			return out, err
		}
	}
	changes := []parked.Change{{Delivery: j.delivery, To: out.progress}}
	if !out.result.repeats(j.delivery, out.progress) {
		changes[0].Entries = []parked.Entry{out.result.entry}
	}
	moved, err := s.store.Record(kept, changes)
	out.progress = changes[0].To
	if len(moved) > 0 {
		s.add(moved)
	}
	return out, err
}

// record stores the changes of deliveries with skipped attempts, until ctx ends. It stores the
// changes of several hosts in one commit. The dispatcher does not wait for it.
func (s *sender) record(ctx context.Context) error {
	for {
		var lanes []*lane
		var changes []parked.Change
		select {
		case <-ctx.Done():
			return nil
		case next := <-s.skips:
			lanes, changes = append(lanes, next.lane), next.changes
		}
		for range len(s.skips) { // safe: no other goroutine receives from skips
			next := <-s.skips
			lanes, changes = append(lanes, next.lane), append(changes, next.changes...)
		}
		if _, err := s.store.Record(ctx, changes); err != nil {
			return endOf(ctx, err)
		}
		s.sink.host.Count("attempts_skipped", int64(len(changes)))
		for _, l := range lanes {
			s.stored <- l // never blocks: has room for all
		}
	}
}

// apply returns the progress of a delivery after an attempt with the result r. begun is the
// progress at the start of the attempt, after the event parked.Begin.
func (r *result) apply(
	begun parked.Progress, s parked.Schedule, now time.Time,
) (parked.Progress, error) {
	if r.event == parked.Start {
		return begun.Started(s, r.operation, now, r.retryAfter)
	}
	next, err := begun.Next(s, r.event, now, r.retryAfter)
	if r.event == parked.Pending {
		next.Operation.Found = r.entry.Detail
	}
	return next, err
}

// repeats reports whether a poll has found the operation unfinished, with the same detail as the
// poll before it, and another poll follows. The history omits such polls. The delivery itself has
// the number of polls.
func (r *result) repeats(d *parked.Delivery, next parked.Progress) bool {
	return r.event == parked.Pending && next.State == parked.Waiting &&
		r.entry.Detail == d.Operation.Found
}

// breakOff waits for the end of ctx. It then gives the workers the time stopGrace to finish their
// attempts, and cancels those that are still in flight.
func (s *sender) breakOff(ctx context.Context) error {
	<-ctx.Done()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-grace.C:
	case <-s.rested:
	}
	s.stop(errStopping)
	return nil
}

func (s *sender) count(e *ended) {
	count := func(name string) { s.sink.host.Count(name, 1) }
	switch {
	case e.delivery.Polled():
		count("polls")
	case e.result.event == parked.Abort:
		count("attempts")
		count("attempts_aborted")
	case e.result.event == parked.Accept:
		count("attempts")
		count("attempts_accepted")
	case e.result.event == parked.Start:
		count("attempts")
		count("operations_started")
	case e.result.entry.Status == 0:
		count("attempts")
		count("attempts_unanswered")
	default:
		count("attempts")
		count("attempts_refused")
	}
	switch e.progress.State {
	case parked.Done:
		count("deliveries_done")
	case parked.Dead:
		count("deliveries_dead")
	case parked.Exhausted:
		count("deliveries_exhausted")
	}
}
