package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/supervise"
)

// slot is the place of a route in its pipeline. It makes the route afresh at each start, from the checkpoint, so that nothing
// of one that has failed is left, and keeps what outlives a route: its accounts, its counters, why it failed.
type slot struct {
	key      string // "pipeline/route"
	pipe     *pipe
	cfg      config.Route
	o        Options
	log      *slog.Logger
	counter  *metrics.Set // of sink and processors
	met      *metrics.Set // of the source's reader
	failures *failures

	mu       sync.Mutex // guards what follows; a route's mu may be taken while it is held
	route    *route     // the last one that was made
	starts   int
	running  bool
	draining bool
	final    bool      // it is not to start again
	arrived  bool      // at the pipeline's barrier
	err      error     // why the last one ended
	next     time.Time // when it starts again; zero: it runs, or never
	past     RouteSnapshot
}

func newSlot(p *pipe, c config.Route, o Options) *slot {
	log := o.Log.With("pipeline", p.name, "route", c.Name)
	return &slot{
		key: p.name + "/" + c.Name, pipe: p, cfg: c, o: o, log: log, counter: new(metrics.Set), met: new(metrics.Set),
		failures: &failures{log: log, by: make(map[string]*failure)},
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

// A finalError ends a route that a restart would not help: the guard, a drain that took too long, anything of a finite run.
type finalError struct{ err error }

func final(err error) error { return &finalError{err} }

// Error says why.
func (e *finalError) Error() string { return e.err.Error() }

// Unwrap returns why, and tells the supervisor not to start it again.
func (e *finalError) Unwrap() []error { return []error{e.err, supervise.ErrStop} }

// routeWaits are the waits before a route starts again, and, as one supervisor, those of a pipeline.
var routeWaits = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Equal()

// child is the recipe of the slot's route. In a finite run it starts once.
func (s *slot) child() supervise.Child {
	return supervise.Child{
		Name: s.cfg.Name, Run: s.run, Restart: supervise.Transient, Backoff: waitsOf(s.o.Once), Shutdown: routeShutdown,
	}
}

// routeShutdown is how long a route that is stopped may take: its attempts return, what had settled is saved.
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
	err = r.run(ctx)
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
	if !first {
		if err := s.again(old); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return nil, err
		}
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
		r.guard = old.guard
	}
	old.mu.Unlock()
	s.route = r
	return nil
}

// arrive comes to the barrier, once for each run of the pipeline.
func (s *slot) arrive() {
	s.mu.Lock()
	was := s.arrived
	s.arrived = true
	s.mu.Unlock()
	if !was {
		s.pipe.opening.arrive()
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
		return
	}
	s.log.Error("route failed; it starts again from its checkpoint", "again_in", e.Delay, "error", e.Err)
	if draining {
		s.pipe.wake(s.cfg.Name)
	}
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
