package pipeline

import (
	"cmp"
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
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// slot stands for one route of a pipeline across restarts. For each start it creates a new route,
// which begins from the checkpoint. So no batch of a failed route remains in memory. The slot keeps
// the counts and the last error across restarts.
type slot struct {
	key           string // "pipeline/route"
	pipe          *pipe
	cfg           config.Route
	o             Options
	log           *slog.Logger
	counter       *metrics.Set // counters of sink and processors
	readerCounter *metrics.Set // counters of the source's reader

	parkedBase *parkedBase
	failures   *failures
	arrived    atomic.Bool   // it has entered the pipeline's barrier
	leaving    bool          // it is being removed; guarded by the pipeline's mu
	over       bool          // it has ended and will not restart; guarded by the pipeline's mu
	left       chan struct{} // closed when the route has ended after drain
	leftOnce   sync.Once

	// reopen has the resume token for the next Open of the sink. It is kept until an Open succeeds.
	// If reopen is nil, the token in the checkpoint is used.
	reopen atomic.Pointer[stream.ReopenError]

	mu       sync.Mutex // guards the fields below; taken before the mu of a route or pipeline
	route    *route     // the latest route
	starts   int
	paused   bool // the last run was stopped, so the next start does not count as a restart
	running  bool
	failure  error // failure after which the latest route was started; nil if there was none
	unstable error // failure of a run that was not stable; nil if a run has been stable since
	draining bool
	final    bool      // it must not restart
	err      error     // error with which the last run ended
	next     time.Time // time of the next start; zero if the route runs or will not restart
	past     status.Route
}

func newSlot(p *pipe, c config.Route, o Options) *slot {
	log := o.Log.With("pipeline", p.name, "route", c.Name)
	s := &slot{
		key: p.name + "/" + c.Name, pipe: p, cfg: c, o: o, log: log,
		counter: new(metrics.Set), readerCounter: new(metrics.Set),
		parkedBase: new(parkedBase),
		failures:   &failures{log: log, of: make(map[part]*failure)}, left: make(chan struct{}),
	}
	for _, name := range []string{"worker_deaths", "processor_deaths", "reopened", "waiting_lost"} {
		s.counter.Add(name, 0)
	}
	return s
}

// renew creates a new route for the next start.
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

// routeWaits are the waits before a route restarts. The same waits apply when a pipeline restarts
// with all its routes.
var routeWaits = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Equal()

// child returns the specification with which the supervisor runs the route. In a finite run the
// route does not restart.
func (s *slot) child() supervise.Child {
	return supervise.Child{
		Name: s.cfg.Name, Run: s.run, Restart: supervise.Transient, Backoff: waitsOf(s.o.Once), Shutdown: routeShutdown,
	}
}

// routeShutdown is the maximum time in which a stopped route must end its attempts and make its
// last save.
const routeShutdown = lastSaveBound + 30*time.Second

// waitsOf returns the waits before restarts. If once is set, there are no restarts.
func waitsOf(once bool) backoff.Policy {
	if once {
		return backoff.Limit(routeWaits, 1)
	}
	return routeWaits
}

// run runs the route once, from its start to its end.
func (s *slot) run(ctx context.Context) error {
	defer s.enterBarrier()
	r, err := s.begin()
	if r == nil {
		return err
	}
	if err = s.runReopening(ctx, r); s.o.Once {
		err = joined(err, r.host.faults.Err())
	}
	err = s.pipe.canRestart(ctx, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.err = false, err
	switch {
	case err == nil:
		s.final = ctx.Err() == nil // otherwise it was stopped, and may restart with its pipeline
	case s.o.Once, errors.Is(err, supervise.ErrStop):
		s.final = true
		if !s.o.Once && ctx.Err() == nil { // log it now, because other routes may keep running
			s.log.Error("route stopped", "error", err)
		}
		return supervise.Final(err)
	}
	return err
}

// runReopening runs r. In two cases it then runs a new route, without a restart by the supervisor:
//
//   - The sink asked to be opened again, after r had opened it. The new route runs at once.
//   - The guard stopped r because of too many dead letters. The new route runs when the input has
//     changed (see inputChanges).
//
// In all other cases, runReopening returns the result of r. The supervisor may then restart the
// route after a wait.
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
		case ok && r.sender.stability.hasOpened():
			s.log.Warn("the route reopens its output", "reason", reopen.Err)
			r.host.Count("reopened", 1)
		case !ok && s.inputChanges(ctx, r, err, &pause):
			s.log.Warn("the input has changed; the route that the guard stopped starts again")
		default:
			return err
		}
		if err := s.nextRoute(r); err != nil {
			return err
		}
		s.mu.Lock()
		s.forgetUnstable(r)
		r, s.failure = s.route, nil
		if s.draining {
			r.drain()
		}
		s.mu.Unlock()
	}
}

// reopenOf returns the ReopenError in err. ok is false if err contains no ReopenError, or
// contains another error as well.
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

// begin returns the route to run. If the route must not run, begin returns nil and the reason.
func (s *slot) begin() (*route, error) {
	s.mu.Lock()
	first := s.starts == 0
	if s.final || s.draining && !first {
		s.final = true
		s.mu.Unlock()
		return nil, supervise.ErrStop
	}
	old := s.route
	if !s.paused {
		s.starts++
		if !first { // the route or its pipeline has failed
			s.failure = cmp.Or(s.err, s.pipe.result())
		}
		if old.sender.stability.hasOpened() {
			s.unstable = s.failure
			s.forgetUnstable(old)
		}
	}
	s.paused = false
	s.mu.Unlock()
	var err error
	switch {
	case !first:
		err = s.nextRoute(old)
	case old.saver.layers == nil: // the slot was added to a running engine
		err = old.prepare(s.pipe.state, s.o.FS)
	}
	if err != nil {
		s.mu.Lock()
		s.err, s.final = err, errors.Is(err, supervise.ErrStop)
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

// nextRoute creates the next route of the slot. The new route continues the counts of the old one.
func (s *slot) nextRoute(old *route) error {
	r, err := newRoute(s)
	if err != nil {
		return err
	}
	if err := r.prepare(s.pipe.state, s.o.FS); err != nil {
		return joined(err, r.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	past, _ := old.snapshot()
	addPast(&past, s.past)
	s.past = past
	old.mu.Lock()
	if old.books != nil {
		r.books.continueFrom(&old.books.counts)
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

// enterBarrier records in the barrier that the route has opened its reader or ended. The other
// routes of the pipeline wait for this. In each run of the pipeline, only the first call counts.
func (s *slot) enterBarrier() {
	if !s.arrived.Swap(true) {
		s.pipe.barrier().arrive()
	}
}

// drain makes the route stop reading and finish its in-flight batches. A route that waits for its
// restart ends without running.
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

// isDraining reports whether the route is draining, or has drained, and must not start again.
func (s *slot) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// ended is called at the end of a run of the route. It stores the error and, if the supervisor
// restarts the route, the time of the restart.
func (s *slot) ended(e supervise.Event) {
	s.mu.Lock()
	s.running = false
	if e.Err != nil && !errors.Is(e.Err, supervise.ErrStop) {
		s.err = e.Err // also after a panic
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

// halted notes that the route is not running. If it was draining, its drain has ended.
func (s *slot) halted() {
	if s.isDraining() {
		s.leftOnce.Do(func() { close(s.left) })
	}
}

// opening returns for how long the route has been opening its sink and reader, or 0 if it is not
// opening them. The caller holds s.mu.
func (s *slot) opening() time.Duration {
	r := s.route
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.running || r.sender.stability.hasOpened() || r.health != healthRunning {
		return 0
	}
	return time.Since(r.started)
}

// unrecovered returns the failure because of which the running route still counts as restarting, or
// nil. After a failure, a route counts as restarting until it has opened. If the failed run had
// ended soon after it had opened, the route counts as restarting until it is stable. Otherwise such
// a route would count as running in each short run. The caller holds s.mu.
func (s *slot) unrecovered() error {
	switch run := &s.route.sender.stability; {
	case !run.hasOpened():
		return cmp.Or(s.failure, s.unstable)
	case !run.isStable():
		return s.unstable
	}
	return nil
}

// forgetUnstable is called after the run of r has ended. If this run was stable, forgetUnstable
// clears the failure of the last unstable run, because of which the route would still count as
// restarting after its next start. The caller holds s.mu.
func (s *slot) forgetUnstable(r *route) {
	if r.sender.stability.isStable() {
		s.unstable = nil
	}
}

// result returns the error of the route's last run that has ended, with the name of the route. It
// returns nil if this run ended normally, or if no run has ended.
func (s *slot) result() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.key, s.err)
}

// letters returns the counts of a route that replays dead letters, and reports whether its sink
// parks them: it stores them and delivers them later.
func (s *slot) letters() (c counts, parks bool) {
	s.mu.Lock()
	r := s.route
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.books != nil {
		c = r.books.counts
	}
	return c, r.parking != nil
}

// snapshot returns the status of the route, with the counts of the slot's earlier routes (see
// addPast).
func (s *slot) snapshot() status.Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := s.route.snapshot()
	out.Starts = s.starts
	addPast(&out, s.past)
	again := time.Duration(0)
	if !s.next.IsZero() {
		out.Health, err, again = healthRestarting, s.err, time.Until(s.next)
	} else if !s.running && !s.final && s.starts > 0 && s.pipe.waiting() {
		out.Health, err = healthRestarting, s.pipe.result()
	} else if failure := s.unrecovered(); failure != nil && s.running &&
		out.Health == healthRunning {
		out.Health, err = healthRestarting, failure
	} else if err == nil && !s.running {
		err = s.err
	}
	switch {
	case s.final && s.err != nil:
		out.Health = healthStopped
	case !s.final && s.pipe.isStandby():
		out.Health, err, again = healthStandby, nil, 0
	}
	if err != nil {
		out.Error = stream.MaskURLs(err.Error())
	}
	out.Again, out.Opening = max(0, again.Seconds()), s.opening().Seconds()
	return out
}
