package httpsink

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// drainPause is the time for which the sink sends no batches to a worker after the worker has
// reported that it drains (will stop soon). Then the sink tries the worker again, because a new
// process may have started at its address.
const drainPause = 5 * time.Second

// lanes holds the workers of the sink: the configured ones and those found by lookups in DNS or at
// NATS servers. It pauses a worker for drainPause after the worker has reported that it drains.
type lanes struct {
	sink *Sink
	set  func([]stream.Lane)
	wake chan struct{} // buffer of 1; signals that a worker is draining

	mu      sync.Mutex // guards the fields below
	all     []*lane
	paused  map[*lane]time.Time // times at which draining workers are tried again
	changed bool                // since the last call of set
}

func (ls *lanes) open(s *Sink, set func([]stream.Lane)) {
	ls.sink, ls.set, ls.wake = s, set, make(chan struct{}, 1)
	ls.all, ls.paused, ls.changed = nil, make(map[*lane]time.Time), true
	for _, e := range s.endpoints {
		ls.all = append(ls.all, newLane(s, e))
	}
}

// close ends idle connections.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		l.current().CloseIdleConnections()
	}
	ls.all = nil
}

// drain pauses the lane of a worker that has reported that it drains (will stop soon). For the time
// drainPause, the lane is not among the lanes that the engine gets.
func (ls *lanes) drain(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.paused[l]; known || !slices.Contains(ls.all, l) {
		return
	}
	ls.paused[l] = time.Now().Add(drainPause)
	ls.changed = true
	ls.sink.host.Count("workers_drained", 1)
	ls.sink.host.Log().Info("worker is draining", "worker", l.endpoint.name,
		"paused_for", drainPause)
	select {
	case ls.wake <- struct{}{}:
	default:
	}
}

// publish passes the lanes that are not paused to the engine, if they have changed since the last
// call of publish. again is the time at which the first of the running pauses ends: call publish
// again at that time. again is zero if no lane is paused.
func (ls *lanes) publish(now time.Time) (again time.Time) {
	ls.mu.Lock()
	var up []stream.Lane
	for _, l := range ls.all {
		if until, ok := ls.paused[l]; ok && now.Before(until) {
			if again.IsZero() || until.Before(again) {
				again = until
			}
			continue
		} else if ok {
			delete(ls.paused, l)
			ls.changed = true
		}
		up = append(up, stream.Lane{Name: l.endpoint.name, Worker: l,
			Limits: stream.Limits{InFlight: inFlight}})
	}
	changed := ls.changed
	ls.changed = false
	ls.mu.Unlock()
	if changed {
		ls.set(up)
	}
	return again
}

// look looks up the addresses of a name, and adds and removes lanes to match them. If the lookup
// finds no address because of an error, the lanes stay. If it fails for only some targets of an SRV
// name, it counts as failed, but look still uses the addresses that were found.
func (ls *lanes) look(ctx context.Context, d *discovered) {
	s := ls.sink
	ctx, cancel := context.WithTimeout(ctx, s.o.ConnectTimeout)
	defer cancel()
	var addresses []string
	var err error
	if d.written.NATS != "" {
		addresses, err = d.ask(ctx, &s.o.Discovery, time.Now(), s.host.Log())
	} else {
		addresses, err = d.lookup(ctx, s.o.Discovery.resolver())
	}
	s.host.Count("lookups", 1)
	if err != nil {
		s.host.Count("lookups_failed", 1)
		if !d.failing && context.Cause(ctx) != context.Canceled {
			s.host.Log().Warn("lookup failed; the last addresses remain in use",
				"endpoint", d.base.name,
				"workers", d.workers, "error", err)
		}
	}
	d.failing = err != nil
	if err != nil && len(addresses) == 0 {
		return
	}
	d.workers = len(addresses)
	var found []endpoint
	for _, a := range addresses {
		found = append(found, d.endpointAt(a))
	}
	ls.replace(d, found)
}

// replace replaces the workers of a name by the found ones. A worker that is in both lists keeps
// its lane. Running requests to removed workers may still complete.
func (ls *lanes) replace(d *discovered, found []endpoint) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = slices.DeleteFunc(ls.all, func(l *lane) bool {
		gone := l.from == d && !slices.ContainsFunc(found,
			func(e endpoint) bool { return e.name == l.endpoint.name })
		if gone {
			l.current().CloseIdleConnections()
			delete(ls.paused, l)
			ls.changed = true
			ls.sink.host.Log().Info("worker left", "worker", l.endpoint.name)
		}
		return gone
	})
	for _, e := range found {
		// it may also be listed by its URL, or by another name
		if slices.ContainsFunc(ls.all, func(l *lane) bool { return l.endpoint.name == e.name }) {
			continue
		}
		l := newLane(ls.sink, e)
		l.from = d
		ls.all = append(ls.all, l)
		ls.changed = true
		ls.sink.host.Log().Info("worker joined", "worker", e.name)
	}
}

// run repeats the lookups of names, and ends the pauses of drained workers, until ctx is done.
func (ls *lanes) run(ctx context.Context) error {
	names := ls.sink.names
	defer func() {
		for i := range names {
			names[i].close()
		}
	}()
	interval := ls.sink.o.Discovery.Interval
	next := time.Now().Add(interval)
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		again := ls.publish(time.Now())
		if len(names) > 0 && (again.IsZero() || next.Before(again)) {
			again = next
		}
		var due <-chan time.Time // nil: only an event changes the lanes
		if !again.IsZero() {
			timer.Reset(time.Until(again))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ls.wake:
		case <-due:
			if len(names) == 0 || time.Now().Before(next) {
				continue
			}
			for i := range names {
				ls.look(ctx, &names[i])
			}
			next = time.Now().Add(interval)
		}
	}
}
