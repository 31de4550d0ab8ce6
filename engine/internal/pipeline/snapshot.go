package pipeline

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// elapsed returns the time since Run was called; 0 before it.
func (e *Engine) elapsed() time.Duration {
	if t := e.started.Load(); t != nil {
		return time.Since(*t)
	}
	return 0
}

// snapshot returns the status of r, and the error with which r stopped. The counts of attempts and
// of workers are those of r alone. addPast adds those of the slot's earlier routes.
func (r *route) snapshot() (s status.Route, err error) {
	s = status.Route{
		Pipeline: r.pipe.name, Name: r.cfg.Name, Source: r.source, Sink: r.cfg.Sink.Component.Name,
		Processors: []string{}, Workers: []status.Worker{}, Environment: r.cfg.FromEnvironment(),
		Counters: r.host.counter.All(), SourceCounters: r.slot.readerCounter.All(), LeftBytes: -1,
		ReplayBoundBytes: max(int64(r.cfg.Checkpoint.Replay), int64(r.cfg.Batch.Bytes)),
	}
	for _, u := range r.cfg.Processors {
		s.Processors = append(s.Processors, u.Component.Name)
	}
	left := r.reader.leftBytes() // not under mu, because the source may lock a mutex of its own
	r.mu.Lock()
	sender := r.sender.sender
	window := r.sender.window
	s.Health, err = r.health, r.err
	r.mu.Unlock()
	if window != nil {
		s.Window = window.Name()
		s.WindowOptions, _ = json.Marshal(window) // options are numbers, which have a JSON form
	}
	inFlight := int64(0)
	if sender != nil {
		now, names := sender.Status()
		inFlight = int64(now.InFlightCost)
		s.Duplicates = int64(now.Duplicates)
		s.Attempts, s.Redelivered, s.ReplayBytes = int64(now.Attempts), int64(now.Redeliveries), now.ReplayBytes
		s.Hedged, s.Suspects, s.Poisoned = int64(now.Hedged), now.Suspects, int64(now.Poisoned)
		s.RedeliveryTokens, s.RedeliveryWaiting = now.Budget.Tokens, now.Budget.Waiting
		s.RedeliveryWaited = int64(now.Budget.Waited)
		for i := range now.Lanes {
			w := explain.WorkerStatus(names[now.Lanes[i].Lane], &now.Lanes[i])
			w.Reason = stream.MaskURLs(w.Reason)
			w.LastFault = r.failures.latestOf(w.Name)
			if w.Gate == "none" && r.reader.budget.exhausted() {
				w.Gate = "memory"
			}
			if w.Gate == "throttle" && r.parking != nil { // only a full store causes this gate
				w.Gate = "park"
			}
			s.Workers = append(s.Workers, w)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.books == nil {
		return s, err
	}
	s.LastFault, s.LeftBytes = r.failures.latest(), left
	if s.Health == healthRunning || s.Health == healthDraining {
		now := r.now()
		s.WatermarkAgeSeconds = r.books.watermarkAge(now).Seconds()
		if r.books.counts.unsettled() > 0 {
			s.QuietSeconds = max(0, now-time.Duration(r.progress.Load())).Seconds()
		}
	}
	c := &r.books.counts
	s.ReadRecords, s.ReadBytes = c.readRecords, c.readBytes
	if s.Health == healthFinished || s.Health == healthStopped {
		s.ReplayBytes = r.books.unsavedBytes // the sender has ended
	}
	s.Delivered, s.DeliveredBytes, s.Dead, s.Dropped = c.delivered, c.deliveredBytes, c.dead, c.dropped
	s.InFlight = min(inFlight, c.unsettled()) // the sender may be behind
	s.Waiting = c.unsettled() - s.InFlight
	r.slot.parkedBase.show(&s)
	return s, err
}

// addPast adds the counts of attempts and workers of the slot's earlier routes (past) to s. The
// counts of records in s already include those of the earlier routes (see continueFrom).
func addPast(s *status.Route, past status.Route) {
	s.Attempts += past.Attempts
	s.Redelivered += past.Redelivered
	s.RedeliveryWaited += past.RedeliveryWaited
	s.Hedged += past.Hedged
	s.Poisoned += past.Poisoned
	s.Duplicates += past.Duplicates
	for _, old := range past.Workers {
		i := slices.IndexFunc(s.Workers, func(w status.Worker) bool { return w.Name == old.Name })
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
