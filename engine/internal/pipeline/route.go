package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// ErrDraining is the cause with which the context for opening or reading ends when the route drains
// or ends.
var ErrDraining = errors.New("pipeline: draining")

// route passes batches from a source through processors to a sink. It owns everything that it needs
// while it runs. It runs once. After a failure, its slot creates a new route.
//
// The work is done by a reader, processors, a sender and a saver, which share a core.
type route struct {
	*core
	pipe *pipe
	slot *slot
	sink stream.Sink

	parking    stream.ParkingSink // the sink; nil if it parks no records
	letters    *letterWriter
	reader     *reader
	processors *processors
	sender     *sender
	saver      *saver
	waits      *waits

	drainOnce sync.Once
	drained   chan struct{} // closed by drain

	// core.mu guards the fields below.
	health string
	err    error
}

// Values of route.health.
const (
	healthRunning    = "running"
	healthDraining   = "draining"
	healthFinished   = "finished"   // its data has ended or, in a run without an end, it has drained
	healthStopped    = "stopped"    // it will not restart
	healthRestarting = "restarting" // failed, and waiting for its restart
	healthStandby    = "standby"    // another process of the cluster may own the pipeline
)

// run runs the route until its data ends, it has drained, or ctx is done. Then it closes everything
// that it has opened.
func (r *route) run(ctx context.Context) error {
	r.reader.left.Store(-1)
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	err := r.runAll(ctx)
	r.sender.stability.end()
	r.mu.Lock()
	r.err = err
	r.health = healthFinished
	if err != nil || r.once && (!r.reader.complete.Load() || r.books.counts.unsettled() > 0) {
		r.health = healthStopped
	}
	r.mu.Unlock()
	return err
}

// runAll runs the sender and all goroutines that the route starts (see send) as one group. If one
// goroutine of the group fails, the others end, and the route fails.
func (r *route) runAll(ctx context.Context) error {
	group := supervise.NewGroup(ctx)
	r.host.group.Store(group)
	var sendErr error
	group.Go("sender", func(ctx context.Context) error {
		defer r.slot.enterBarrier() // also if the route fails before begin has entered the barrier
		sendErr = r.send(ctx, group)
		group.Stop(sendErr)
		return nil
	})
	groupErr := group.Wait()
	r.failures.reportDead(true)
	err := joined(r.host.stopped(), sendErr, groupErr, r.close())
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.once {
		err = r.books.runError()
	}
	return err
}

// send opens the sink and the reader, starts the goroutines of the route, and delivers until the
// data ends or an error occurs. Then it saves the progress.
func (r *route) send(ctx context.Context, group *supervise.Group) error {
	ready, err := r.begin(ctx, group)
	if !ready {
		return err
	}
	defer r.reader.reads.end(ErrDraining)
	saveCtx, stopSaving := context.WithCancel(ctx)
	defer stopSaving()
	saved := make(chan struct{})
	group.Go("drain", func(ctx context.Context) error { return r.watchDrain(ctx) })
	if r.processors.needed() {
		group.Go("reader", r.reader.Run)
		group.Go("processors", r.processors.Run)
	}
	group.Go("checkpoint", func(context.Context) error {
		defer close(saved)
		return r.saver.Run(saveCtx)
	})
	if r.once && r.slot.o.Stall > 0 {
		group.Go("stall", r.watchStall)
	}
	err = r.sender.Run(ctx)
	r.reader.reads.end(ErrDraining)
	stopSaving()
	<-saved
	return joined(err, r.saver.lastSave(ctx))
}

// joined joins errors and omits duplicates.
func joined(errs ...error) error {
	var out []error
	for _, err := range errs {
		if err == nil || slices.ContainsFunc(out, func(e error) bool {
			return errors.Is(e, err) || errors.Is(err, e)
		}) {
			continue
		}
		out = append(out, err)
	}
	return errors.Join(out...)
}

// open opens the sink, the store of waiting batches, the sender and the reader, in this order.
// prepare has opened the dead letters before. Everything that a record can be written to is
// therefore open before the first record is read.
func (r *route) open(ctx context.Context) error {
	o := stream.SinkOptions{Pipeline: r.pipe.name, Route: r.cfg.Name, Lanes: r.sender.setLanes, Once: r.once}
	if s, ok := r.pipe.source.(stream.RequestSource); ok {
		o.Own, o.Keep = s.KeepsRequests()
	}
	if s, ok := r.pipe.source.(*deadletter.Source); ok {
		o.OwnLetters = s.Assigned
	}
	o.DeadLetter, o.Synced = r.letters.write, r.saver.synced
	o.StateDir = func() (string, error) { return r.pipe.state.sinkDir(r.pipe.name, r.cfg.Name) }
	tokens := r.saver.layers.resumeTokens()
	for _, lane := range slices.Sorted(maps.Keys(tokens)) { // at most one lane: see saveToken
		o.ResumeToken = tokens[lane]
	}
	if reopen := r.slot.reopen.Load(); reopen != nil {
		o.ResumeToken = reopen.ResumeToken
	}
	if err := r.sink.Open(ctx, o); err != nil {
		return fmt.Errorf("sink %s: %w", r.cfg.Sink.Component.Name, err)
	}
	if r.parking != nil {
		r.slot.parkedBase.opened(r)
	}
	if err := r.saver.saveToken(tokens, r.sender.lanes()); err != nil {
		return err
	}
	r.slot.reopen.Store(nil) // the checkpoint has the resume token
	if err := r.saver.load(ctx, o); err != nil {
		return err
	}
	if err := r.pipe.confirm(ctx); err != nil {
		return err
	}
	if err := r.waits.open(r.pipe); err != nil {
		return err
	}
	if err := r.saver.checkLedger(); err != nil {
		return err
	}
	if err := r.sender.open(); err != nil {
		return err
	}
	opening := stream.OpenOptions{
		Route: r.key, Resume: r.saver.markOf, Known: r.saver.known(), Linger: r.cfg.Batch.Linger,
		Once:  r.once,
		State: r.stateDir, Count: r.slot.readerCounter.Add, Withdraw: r.sender.withdrawUnsent,
	}
	if r.assigned != nil {
		opening.Assignments = r.assigned
	}
	r.sender.withdrawals = new(withdrawals)
	r.reader.withdrawals = r.sender.withdrawals
	source, err := r.pipe.source.Open(ctx, opening)
	if err != nil {
		return fmt.Errorf("source %s: %w", r.source, err)
	}
	r.reader.open(source)
	r.saver.reader = source
	r.reader.withdrawals.open(source)
	if err := r.assigned.open(source); err != nil {
		return fmt.Errorf("source %s: %w", r.source, err)
	}
	if settlerOf(r.saver) != nil && r.saver.soon == nil {
		r.saver.soon = make(chan struct{}, 1)
	}
	return r.waits.begin(source)
}

// drain makes the route stop reading.
func (r *route) drain() {
	r.drainOnce.Do(func() {
		r.mu.Lock()
		if r.health == healthRunning {
			r.health = healthDraining
		}
		r.mu.Unlock()
		close(r.drained)
	})
}

// watchDrain stops the reader when the route drains. Then it watches the drain, and stops the route
// if the drain takes longer than its maximum time or no worker can deliver.
func (r *route) watchDrain(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.drained:
	}
	if d, ok := r.reader.reader.(stream.DrainingReader); ok {
		d.Drain()
	} else {
		r.reader.reads.end(ErrDraining)
	}
	r.waits.stop()
	lost := outageDetector{refusing: true, grace: drainGrace, end: time.Now().Add(r.cfg.Drain)}
	return r.awaitSettled(ctx, lost, supervise.Final)
}

// sourceFailed is called when nothing more can be read, because the source or a processor has
// failed with err. The batches that were read before may still settle, within the maximum time of a
// drain. Then the route fails with err.
func (r *route) sourceFailed(err error) {
	r.waits.stop() // waiting batches remain in the store for the next start
	r.host.Go("source failed", func(ctx context.Context) error {
		lost := outageDetector{refusing: true, grace: drainGrace}
		return r.awaitSettled(ctx, lost, func(error) error { return err })
	})
}

// awaitSettled waits until the route has settled its batches and ended, which ends ctx. It stops
// the route if the wait takes longer than the maximum time of a drain, or if lost detects that no
// worker can deliver. The function cause gets the reason, and returns the error with which the route
// fails.
func (r *route) awaitSettled(ctx context.Context, lost outageDetector,
	cause func(why error) error) error {
	bound := time.NewTimer(r.cfg.Drain)
	defer bound.Stop()
	tick := time.NewTicker(outageTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bound.C:
			const late = "draining took longer than %v; in-flight batches will be delivered again " +
				"at the next start, if the source can read them again"
			r.host.stop(cause(fmt.Errorf(late, r.cfg.Drain)))
			return nil
		case <-tick.C:
			if lost.reached(r) {
				const unable = "no worker can deliver, so draining ended; waiting batches will be " +
					"delivered at the next start, if the source can read them again: %s"
				r.host.stop(cause(fmt.Errorf(unable, r.trouble())))
				return nil
			}
		}
	}
}

// watchStall stops a finite run if data waits and none settles for too long, or if every worker is
// misconfigured.
func (r *route) watchStall(ctx context.Context) error {
	tick := time.NewTicker(min(max(r.slot.o.Stall/20, 10*time.Millisecond), outageTick))
	defer tick.Stop()
	lost := outageDetector{grace: onceGrace}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		unsettled := r.unsettled()
		quiet := r.now() - time.Duration(r.progress.Load())
		if unsettled == 0 {
			r.progress.Store(int64(r.now()))
		} else if quiet >= r.slot.o.Stall {
			r.host.stop(fmt.Errorf("nothing was delivered for %v while %d records wait: %s",
				r.slot.o.Stall, unsettled, r.trouble()))
			return nil
		}
		if lost.reached(r) {
			r.host.stop(fmt.Errorf("every worker is misconfigured while %d records wait: %s", unsettled, r.trouble()))
			return nil
		}
	}
}

// trouble returns the reason why the workers do not deliver.
func (r *route) trouble() string {
	if s, ok := r.processors.longestStep(); ok && time.Since(s.began) >= r.slot.o.Stall/2 {
		return fmt.Sprintf("%s has worked on one batch for %v", s.name, time.Since(s.began).Round(time.Second))
	}
	if last := r.failures.latest(); last != "" {
		return last
	}
	status, names := r.sender.sender.Status()
	for _, l := range status.Lanes {
		if l.Reason != "" {
			return fmt.Sprintf("worker %s is %s: %s", names[l.Lane], l.State, l.Reason)
		}
	}
	return "no worker has given a reason"
}

func (r *route) close() error {
	r.assigned.end()
	var errs []error
	if r.reader.reader != nil {
		r.reader.end()
		errs = append(errs, r.reader.reader.Close())
	}
	errs = append(errs, r.sink.Close(), r.waits.close())
	if r.letters.store != nil {
		errs = append(errs, r.letters.store.Close())
	}
	r.sender.closeTrace()
	return errors.Join(errs...)
}
