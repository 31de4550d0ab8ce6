package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// replayStall is the time after which a replay without deliveries ends. It is short, because the
// route is paused during the replay.
const replayStall = time.Minute

// ReplayLetters takes the dead letters of a route that match the filter, and delivers each of them
// once more, through the route's processors and sink. If discard is set, it only marks the letters
// as settled, and the route keeps running.
//
// The replay uses the route's checkpoint. So the route drains before the replay and restarts after
// it. Other routes continue.
//
// ReplayLetters returns when the route has restarted. It returns an error if the replay fails or
// cannot begin, for example because the engine is draining or runs with Options.Once.
func (e *Engine) ReplayLetters(
	ctx context.Context, pipeline, route string, filter deadletter.Filter, discard bool,
) (result status.Replay, err error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	if e.stuck != nil {
		return result, fmt.Errorf("an earlier change is incomplete: %w", e.stuck)
	}
	if err := e.hold(); err != nil {
		return result, err
	}
	defer e.release()
	s := e.find(pipeline, route)
	if s == nil {
		return result, admin.ErrNoRoute
	}
	p := s.pipe
	result = status.Replay{
		Pipeline: pipeline, Route: route, At: time.Now().UTC(), Running: true, Discard: discard,
	}
	if discard {
		err := e.discard(ctx, LettersPath(p.cfg, s.cfg), s.key, filter, &result)
		return e.replayEnded(result, err), err
	}
	if p.isStandby() {
		const runsElsewhere = "another process of the cluster runs the pipeline: " +
			"replay when this one does"
		return result, errors.New(runsElsewhere)
	}
	if e.hasEnded(p) || !p.hold() {
		const ended = "the pipeline has ended: restart penstock, or use `penstock dead replay`"
		return result, errors.New(ended)
	}
	defer p.release()
	replay, err := newPipe(replayOf(p.cfg, s.cfg, filter), e.replayOptions())
	if err != nil {
		return result, err
	}
	replay.state = e.state
	e.setReplay(replay, result)
	p.leave(s)
	if err := p.remove(ctx, s); err != nil {
		e.stuck = err
		return e.replayEnded(result, err), err
	}
	err = e.runReplay(ctx, replay)
	counted(replay, &result)
	result = e.replayEnded(result, err)
	return result, errors.Join(err, e.resume(p, s, result.Parked))
}

func (e *Engine) replayOptions() Options {
	o := e.o
	o.Once, o.Stall, o.Manifest, o.clustered = true, replayStall, nil, false
	return o
}

// runReplay runs a replay beside the pipelines until it ends or ctx is done.
func (e *Engine) runReplay(ctx context.Context, replay *pipe) error {
	name := replay.name + ": replay of " + replay.slots[0].cfg.Name
	ended := make(chan error, 1)
	child := supervise.Child{Name: name, Restart: supervise.Temporary, Shutdown: pipelineShutdown}
	child.Run = func(ctx context.Context) error {
		err := errors.New("the replay ended without a result") // returned if run panics
		defer func() { ended <- err }()
		err = joined(replay.run(ctx), replay.slots[0].result())
		return nil
	}
	e.mu.Lock()
	pool, draining := e.pool, e.draining
	e.mu.Unlock()
	if draining {
		return errors.New("the engine is draining")
	}
	if err := pool.Add(child); err != nil {
		return err
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if stuck := removeChild(ctx, pool, name); stuck != nil { // it may still be in the pool
		e.stuck = stuck
		return stuck
	}
	return err
}

// resume restarts a route that was stopped for a replay. The restarted route continues the counts
// of the old one. parked is the number of dead letters that the replay has parked (given to the
// sink's store for a later delivery).
func (e *Engine) resume(p *pipe, old *slot, parked int64) error {
	fresh := newSlot(p, old.cfg, e.o)
	fresh.counter, fresh.readerCounter, fresh.failures = old.counter, old.readerCounter, old.failures
	fresh.parkedBase = old.parkedBase
	fresh.parkedBase.add(parked)
	old.mu.Lock()
	fresh.route, fresh.starts, fresh.past = old.route, old.starts, old.past
	fresh.failure, fresh.unstable = cmp.Or(old.err, old.unrecovered()), old.unstable
	old.mu.Unlock()
	if fresh.starts == 0 { // the old route never ran, and is closed
		if err := fresh.renew(); err != nil {
			return err
		}
	} else {
		fresh.paused = true
	}
	change := &changedPipe{pipe: p, removed: []*slot{old}, added: []*slot{fresh}}
	for _, s := range p.routes() {
		if s == old {
			s = fresh
		}
		change.to = append(change.to, s)
	}
	err := change.replace()
	e.mu.Lock()
	draining := e.draining
	e.mu.Unlock()
	if draining { // draining was set while the replay ran
		e.Drain()
	}
	return err
}

func (e *Engine) setReplay(p *pipe, r status.Replay) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replaying, e.replayed = p, &r
}

// replayEnded notes the end of a replay or discard and returns its result. A nil err means success.
func (e *Engine) replayEnded(r status.Replay, err error) status.Replay {
	done := "replayed"
	if r.Discard {
		done = "discarded"
	}
	r.Running = false
	if err != nil {
		r.Error = stream.MaskURLs(err.Error())
		e.o.Log.Error("dead letters not "+done,
			"pipeline", r.Pipeline, "route", r.Route, "error", err)
	} else {
		e.o.Log.Info("dead letters "+done, "pipeline", r.Pipeline, "route", r.Route,
			"letters", r.Letters, "delivered", r.Delivered, "dead", r.Dead, "dropped", r.Dropped,
			"parked", r.Parked)
	}
	e.setReplay(nil, r)
	return r
}

// counted sets the counts of r, the status of a replay, to the numbers of dead letters that the
// replay has read and settled. p is the pipeline that performs the replay. Records that the sink
// parked (stored for a later delivery) before the replay do not count.
func counted(p *pipe, r *status.Replay) {
	c, parks := p.routes()[0].letters()
	r.Letters, r.Delivered, r.Dead, r.Dropped = c.readRecords, c.delivered, c.dead, c.dropped
	if parks {
		r.Delivered, r.Parked = 0, c.delivered
	}
}

// lastReplay returns the status of the running replay. If none is running, it returns the status of
// the last one, or nil if there was none. If the engine itself was started for a replay (see
// ReplayConfig), its run is the replay.
func (e *Engine) lastReplay() *status.Replay {
	e.mu.Lock()
	p, last := e.replaying, e.replayed
	if len(e.pipes) > 0 && e.pipes[0].isReplay() {
		p = e.pipes[0]
		last = &status.Replay{Pipeline: p.name, Route: p.routes()[0].cfg.Name, Running: true}
	}
	e.mu.Unlock()
	if p == nil || last == nil {
		return last
	}
	now := *last
	counted(p, &now)
	return &now
}
