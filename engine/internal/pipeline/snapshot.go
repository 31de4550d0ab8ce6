package pipeline

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Snapshot is a picture of an engine.
type Snapshot struct {
	Elapsed time.Duration // since Run began
	Routes  []RouteSnapshot
	Sources []SourceSnapshot // one a pipeline
}

// SourceSnapshot is a picture of what a source did for all of its routes at once, such as to finish
// files.
type SourceSnapshot struct {
	Pipeline, Source string // Source is the component
	Counters         map[string]int64
}

// RouteSnapshot is a picture of one route; all counts are source records of this run.
type RouteSnapshot struct {
	Pipeline, Route                                             string
	ReadRecords, ReadBytes                                      int64
	Delivered, DeliveredBytes, Dead, Dropped, InFlight, Waiting int64
	Attempts, Redelivered                                       int64         // batches
	ReplayBytes                                                 int64         // what a kill right now would repeat at most
	ReplayBound                                                 int64         // and at any moment
	Health                                                      string        // "running", "draining", "finished", "stopped", "restarting"
	Err                                                         error         // why it stopped, or why the one before it did
	Starts                                                      int           // of this run; more than one: it has failed meanwhile
	Again                                                       time.Duration // restarting: until it starts
	Duplicates                                                  int64         // answers that delivered a batch a second time
	Quiet                                                       time.Duration // since something settled, while data waits
	WatermarkAge                                                time.Duration // of the oldest watermark that data waits above
	LeftBytes                                                   int64         // that the source has and nobody has read; -1: not known
	LastFault                                                   string        // the latest failure of a worker, in words
	Window                                                      string        // algorithm of the windows; "" at first
	Workers                                                     []WorkerSnapshot
	Counters                                                    map[string]int64 // of sink and processors
	Source                                                      string           // the component
	SourceCounters                                              map[string]int64 // of its reader for this route

	Budget   control.BudgetStatus // of redeliveries
	Hedged   int64                // redeliveries beside an attempt that took long
	Suspects int                  // batches kept apart: workers that take others fail them
	Poisoned int64                // batches refused since workers died of them, or failed them
}

// WorkerSnapshot is a picture of one worker.
type WorkerSnapshot struct {
	Name                string
	State, Reason, Gate string
	Window              float64
	InFlight            int
	RoundTrip, Base     time.Duration // smoothed; when drained
	Timeout             time.Duration
	Delivered, Failed   uint64 // attempts; Failed with those that timed out
	TimedOut, Throttled uint64
	Late                uint64
	Misconfigured       bool
}

// Snapshot is a consistent picture of each route: ReadRecords = Delivered + Dead + Dropped +
// InFlight + Waiting in every one.
func (e *Engine) Snapshot() Snapshot {
	s := Snapshot{Elapsed: e.elapsed()}
	for _, p := range e.pipelines() {
		s.Sources = append(s.Sources, SourceSnapshot{p.name, p.cfg.Source.Component.Name, p.counter.All()})
		for _, slot := range p.routes() {
			s.Routes = append(s.Routes, slot.snapshot())
		}
	}
	return s
}

// elapsed is how long Run has been running; 0 before it.
func (e *Engine) elapsed() time.Duration {
	if t := e.started.Load(); t != nil {
		return time.Since(*t)
	}
	return 0
}

func (r *route) snapshot() RouteSnapshot {
	s := RouteSnapshot{Pipeline: r.pipe.name, Route: r.cfg.Name, ReplayBound: max(int64(r.cfg.Checkpoint.Replay), int64(r.cfg.Batch.Bytes))}
	s.Counters = r.host.counter.All()
	s.Source, s.SourceCounters = r.source, r.slot.met.All()
	r.mu.Lock()
	sender := r.sender.sender
	s.Health, s.Err, s.Window = r.health, r.err, r.sender.window
	r.mu.Unlock()
	inFlight := int64(0)
	if sender != nil {
		status, names := sender.Status()
		inFlight = int64(status.InFlightCost)
		s.Duplicates = int64(status.Duplicates)
		s.Attempts, s.Redelivered, s.ReplayBytes = int64(status.Attempts), int64(status.Redeliveries), status.ReplayBytes
		s.Hedged = int64(status.Hedged)
		s.Budget, s.Suspects, s.Poisoned = status.Budget, status.Suspects, int64(status.Poisoned)
		for _, l := range status.Lanes {
			if l.Gate == "none" && r.reader.budget.exhausted() {
				l.Gate = "memory"
			}
			s.Workers = append(s.Workers, WorkerSnapshot{
				Name: names[l.Lane], State: l.State.String(), Reason: l.Reason, Gate: l.Gate, Window: l.Window,
				InFlight: l.InFlight, RoundTrip: l.RoundTrip, Base: l.Base, Timeout: l.Timeout,
				Delivered: l.Delivered, Failed: l.Failed + l.TimedOut, TimedOut: l.TimedOut, Throttled: l.ThrottledN, Late: l.Late,
				Misconfigured: l.Fault == control.Misconfigured,
			})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.books == nil {
		return s
	}
	s.LastFault, s.LeftBytes = r.failures.latest(), r.reader.left.Load()
	if s.Health == healthRunning || s.Health == healthDraining {
		now := r.now()
		if s.WatermarkAge = r.books.watermarkAge(now); r.books.counts.unsettled() > 0 {
			s.Quiet = max(0, now-time.Duration(r.progress.Load()))
		}
	}
	c := &r.books.counts
	s.ReadRecords, s.ReadBytes = c.readRecords, c.readBytes
	if s.Health == healthFinished || s.Health == healthStopped {
		s.ReplayBytes = r.books.unsavedBytes // the sender has ended and hears of no save any more
	}
	s.Delivered, s.DeliveredBytes, s.Dead, s.Dropped = c.delivered, c.deliveredBytes, c.dead, c.dropped
	s.InFlight = min(inFlight, c.unsettled()) // the sender may not yet have taken what has just settled out of its sum
	s.Waiting = c.unsettled() - s.InFlight
	return s
}

// add adds what earlier routes of the slot have done: what its books do not carry on.
func (s *RouteSnapshot) add(past RouteSnapshot) {
	s.Attempts += past.Attempts
	s.Redelivered += past.Redelivered
	s.Duplicates += past.Duplicates
	for _, old := range past.Workers {
		i := slices.IndexFunc(s.Workers, func(w WorkerSnapshot) bool { return w.Name == old.Name })
		if i < 0 {
			continue
		}
		w := &s.Workers[i]
		w.Delivered += old.Delivered
		w.Failed += old.Failed
		w.TimedOut += old.TimedOut
		w.Throttled += old.Throttled
		w.Late += old.Late
	}
}
