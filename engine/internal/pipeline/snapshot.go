package pipeline

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Snapshot is the state of an engine at one moment.
type Snapshot struct {
	Elapsed time.Duration // since Run began
	Routes  []RouteSnapshot
	Sources []SourceSnapshot // one for each pipeline
}

// SourceSnapshot shows actions of a source on behalf of all its routes, such as finished files.
type SourceSnapshot struct {
	Pipeline, Source string // Source is the component
	Counters         map[string]int64
}

// RouteSnapshot is the state of one route at one moment; all counts are source records of this run.
type RouteSnapshot struct {
	Pipeline, Route                                             string
	ReadRecords, ReadBytes                                      int64
	Delivered, DeliveredBytes, Dead, Dropped, InFlight, Waiting int64
	Parked                                                      int64 // records in the store of the sink

	Attempts, Redelivered int64         // batches
	ReplayBytes           int64         // bytes that a kill would repeat now
	ReplayBound           int64         // upper bound of ReplayBytes at any moment
	Health                string        // one of the constants in route.go
	Err                   error         // why it, or its predecessor, stopped
	Starts                int           // in this run; more than one after failures
	Again                 time.Duration // time to the restart, if restarting
	Duplicates            int64         // successful responses for a batch that was already delivered
	Quiet                 time.Duration // time since the last settlement, while data waits
	WatermarkAge          time.Duration // age of the oldest watermark with unsettled data above it
	LeftBytes             int64         // unread bytes of the source; -1 if unknown
	LastFault             string        // text of a worker's latest failure
	Window                string        // algorithm of the windows; "" before the sender exists
	Workers               []WorkerSnapshot
	Counters              map[string]int64 // of sink and processors
	Source                string           // the component
	SourceCounters        map[string]int64 // of its reader for this route

	Budget control.BudgetStatus // of redeliveries
	Hedged int64                // attempts beside one that took long
	Apart  SuspectCounts
}

// SuspectCounts count batches, not records.
type SuspectCounts struct {
	Suspects int   // batches kept apart, because workers that accept other batches fail them
	Poisoned int64 // batches refused because workers died of them or failed on them
}

// WorkerSnapshot is the state of one worker at one moment.
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

// Snapshot returns a consistent state for each route: ReadRecords = Delivered + Dead + Dropped +
// InFlight + Waiting + Parked.
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

// elapsed returns the time since Run was called; 0 before it.
func (e *Engine) elapsed() time.Duration {
	if t := e.started.Load(); t != nil {
		return time.Since(*t)
	}
	return 0
}

func (r *route) snapshot() RouteSnapshot {
	s := RouteSnapshot{Pipeline: r.pipe.name, Route: r.cfg.Name, ReplayBound: max(int64(r.cfg.Checkpoint.Replay), int64(r.cfg.Batch.Bytes))}
	s.LeftBytes = -1
	s.Counters = r.host.counter.All()
	s.Source, s.SourceCounters = r.source, r.slot.met.All()
	left := r.reader.leftBytes() // not under mu: the source may have a lock of its own
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
		s.Budget = status.Budget
		s.Apart = SuspectCounts{status.Suspects, int64(status.Poisoned)}
		for _, l := range status.Lanes {
			if l.Gate == "none" && r.reader.budget.exhausted() {
				l.Gate = "memory"
			}
			if l.Gate == "throttle" && r.parking.sink != nil { // its only reason is a full store
				l.Gate = "park"
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
	s.LastFault, s.LeftBytes = r.failures.latest(), left
	if s.Health == healthRunning || s.Health == healthDraining {
		now := r.now()
		if s.WatermarkAge = r.books.watermarkAge(now); r.books.counts.unsettled() > 0 {
			s.Quiet = max(0, now-time.Duration(r.progress.Load()))
		}
	}
	c := &r.books.counts
	s.ReadRecords, s.ReadBytes = c.readRecords, c.readBytes
	if s.Health == healthFinished || s.Health == healthStopped {
		s.ReplayBytes = r.books.unsavedBytes // the sender has ended and no longer learns of saves
	}
	s.Delivered, s.DeliveredBytes, s.Dead, s.Dropped = c.delivered, c.deliveredBytes, c.dead, c.dropped
	s.InFlight = min(inFlight, c.unsettled()) // the sender may still count a batch that has just settled
	s.Waiting = c.unsettled() - s.InFlight
	r.parking.show(&s)
	return s
}

// add adds the counts of the slot's earlier routes that books do not carry over.
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
