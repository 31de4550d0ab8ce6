package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// slot is the place of a route in its pipeline. It makes the route afresh at each start, from the
// checkpoint, so that nothing of one that has failed is left, and keeps what outlives a route: its
// accounts, its counters, why it failed.
type slot struct {
	key      string // "pipeline/route"
	pipe     *pipe
	cfg      config.Route
	o        Options
	log      *slog.Logger
	counter  *metrics.Set // of sink and processors
	met      *metrics.Set // of the source's reader
	failures *failures
	arrived  atomic.Bool   // at the pipeline's barrier
	leaving  bool          // Apply is removing it; guarded by the pipeline's mu
	left     chan struct{} // closed when it has ended after drain
	leftOnce sync.Once

	// reopen has the place for the next Open of a sink, and is kept until one succeeds. Nil means the
	// checkpoint's place.
	reopen atomic.Pointer[stream.ReopenError]

	mu       sync.Mutex // guards what follows; a route's mu, and the pipeline's, may be taken while it is held
	route    *route     // the last one that was made
	starts   int
	running  bool
	draining bool
	final    bool      // it is not to start again
	err      error     // why the last one ended
	next     time.Time // when it starts again; zero: it runs, or never
	past     RouteSnapshot
}

func newSlot(p *pipe, c config.Route, o Options) *slot {
	log := o.Log.With("pipeline", p.name, "route", c.Name)
	return &slot{
		key: p.name + "/" + c.Name, pipe: p, cfg: c, o: o, log: log, counter: new(metrics.Set), met: new(metrics.Set),
		failures: &failures{log: log, by: make(map[string]*failure)}, left: make(chan struct{}),
	}
}

// renew makes the route.
func (s *slot) renew() error {
	r, err := newRoute(s)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.route = r
	return nil
}

// A finalError ends a route that a restart would not help: the guard, a drain that took too long,
// anything of a finite run.
type finalError struct{ err error }

func final(err error) error { return &finalError{err} }

// Error says why.
func (e *finalError) Error() string { return e.err.Error() }

// Unwrap returns why, and tells the supervisor not to start it again.
func (e *finalError) Unwrap() []error { return []error{e.err, supervise.ErrStop} }

// routeWaits are the waits before a route starts again, and, as one supervisor, those of a
// pipeline.
var routeWaits = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Equal()

// child is the recipe of the slot's route. In a finite run it starts once.
func (s *slot) child() supervise.Child {
	return supervise.Child{
		Name: s.cfg.Name, Run: s.run, Restart: supervise.Transient, Backoff: waitsOf(s.o.Once), Shutdown: routeShutdown,
	}
}

// routeShutdown is how long a route that is stopped may take: its attempts return, what had settled
// is saved.
const routeShutdown = lastSaveBound + 30*time.Second

// waitsOf is no wait at all where a failure is the end.
func waitsOf(once bool) backoff.Policy {
	if once {
		return backoff.Limit(routeWaits, 1)
	}
	return routeWaits
}

// run runs one route, from its start to its end.
func (s *slot) run(ctx context.Context) error {
	defer s.arrive()
	r, err := s.begin()
	if r == nil {
		return err
	}
	if err = s.runReopening(ctx, r); s.o.Once {
		err = joined(err, r.host.faults.err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.err = false, err
	switch {
	case err == nil:
		s.final = ctx.Err() == nil // else it was stopped with nothing in hand, maybe to start again with its pipeline
	case s.o.Once, errors.Is(err, supervise.ErrStop):
		s.final = true
		if !s.o.Once && ctx.Err() == nil { // others go on, maybe for weeks, until Run returns it
			s.log.Error("route stopped", "error", err)
		}
		return final(err)
	}
	return err
}

// runReopening runs r, and a new route each time its sink asks to be opened again, or the guard
// has stopped it and its input changes. A sink that asks before the route is open fails the route
// instead: the supervisor then waits before it restarts it.
func (s *slot) runReopening(ctx context.Context, r *route) error {
	var pause backoff.State
	for {
		err := r.run(ctx)
		reopen, ok := reopenOf(err)
		if ok {
			s.reopen.Store(reopen)
		}
		switch {
		case ctx.Err() != nil:
			return err
		case ok && r.opens.Load():
			s.log.Warn("the route closes its output and opens it again", "reason", reopen.Err)
			r.host.Count("reopened", 1)
		case !ok && s.inputChanges(ctx, r, err, &pause):
			s.log.Warn("the input has changed; the route that the guard stopped starts again")
		default:
			return err
		}
		if err := s.again(r); err != nil {
			return err
		}
		s.mu.Lock()
		r = s.route
		if s.draining {
			r.drain()
		}
		s.mu.Unlock()
	}
}

// reopenOf returns the ReopenError in err. ok is false if err is nil or joins it with another
// failure.
func reopenOf(err error) (reopen *stream.ReopenError, ok bool) {
	switch e := err.(type) {
	case *stream.ReopenError:
		return e, true
	case interface{ Unwrap() error }:
		return reopenOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if reopen, ok = reopenOf(part); !ok {
				return nil, false
			}
		}
	}
	return reopen, ok
}

// begin returns the route that is to run; nil: none, with why not.
func (s *slot) begin() (*route, error) {
	s.mu.Lock()
	first := s.starts == 0
	if s.final || s.draining && !first {
		s.final = true
		s.mu.Unlock()
		return nil, supervise.ErrStop
	}
	s.starts++
	old := s.route
	s.mu.Unlock()
	var err error
	switch {
	case !first:
		err = s.again(old)
	case old.keeper.memory == nil: // it was added to a running engine
		err = old.prepare(s.pipe.state, s.o.FS, s.o.Boot)
	}
	if err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.next = true, time.Time{}
	if s.draining {
		s.route.drain()
	}
	return s.route, nil
}

// again makes the next route and hands the accounts of the old one on to it.
func (s *slot) again(old *route) error {
	r, err := newRoute(s)
	if err != nil {
		return err
	}
	if err := r.prepare(s.pipe.state, s.o.FS, s.o.Boot); err != nil {
		return joined(err, r.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	past := old.snapshot()
	past.add(s.past)
	s.past = past
	old.mu.Lock()
	if old.books != nil {
		r.books.goOn(&old.books.counts)
		if _, stopped := errors.AsType[*deadletter.GuardError](old.err); stopped {
			r.guard.Start(time.Now())
		} else {
			r.guard = old.guard
		}
	}
	old.mu.Unlock()
	s.route = r
	return nil
}

// arrive comes to the barrier, once for each run of the pipeline.
func (s *slot) arrive() {
	if !s.arrived.Swap(true) {
		s.pipe.barrier().arrive()
	}
}

// drain lets the route finish; one that waits for its restart is not started again.
func (s *slot) drain() {
	s.mu.Lock()
	s.draining = true
	r, waits := s.route, !s.next.IsZero()
	s.mu.Unlock()
	r.drain()
	if waits {
		s.pipe.wake(s.cfg.Name)
	}
}

// isDraining reports whether the route is not to run again.
func (s *slot) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// ended notes whether and when the route starts again.
func (s *slot) ended(e supervise.Event) {
	s.mu.Lock()
	s.running = false
	if e.Err != nil && !errors.Is(e.Err, supervise.ErrStop) {
		s.err = e.Err // also of a panic
	}
	s.next = time.Time{}
	if e.Restart {
		s.next = e.Time.Add(e.Delay)
	}
	draining := s.draining
	s.mu.Unlock()
	if !e.Restart {
		s.halted()
		return
	}
	s.log.Error("route failed; it starts again from its checkpoint", "again_in", e.Delay, "error", e.Err)
	if draining {
		s.pipe.wake(s.cfg.Name)
	}
}

// halted tells those who wait for the end of a drain that the route does not run any more.
func (s *slot) halted() {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if draining {
		s.leftOnce.Do(func() { close(s.left) })
	}
}

// opening returns for how long the route has been opening its sink and source; 0 if it does not.
func (s *slot) opening() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.route
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.running || r.opens.Load() || r.health != healthRunning {
		return 0
	}
	return time.Since(r.started)
}

// result is why the route ended, with its name; nil: as it should, or not at all.
func (s *slot) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.key, s.err)
}

// snapshot is a picture of the route, with what those before it have done.
func (s *slot) snapshot() RouteSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.route.snapshot()
	out.Starts = s.starts
	out.add(s.past)
	if !s.next.IsZero() {
		out.Health, out.Err, out.Again = healthRestarting, s.err, time.Until(s.next)
	} else if !s.running && !s.final && s.starts > 0 && s.pipe.waiting() {
		out.Health, out.Err = healthRestarting, s.pipe.result()
	} else if s.running && s.starts > 1 && out.Health == healthRunning && !s.route.opens.Load() {
		out.Health, out.Err = healthRestarting, s.err // it has not got further than the one before
	} else if out.Err == nil && !s.running {
		out.Err = s.err
	}
	return out
}
