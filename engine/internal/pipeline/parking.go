package pipeline

import (
	"context"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// parkedBase has the counts of a parking sink's store from the time when the first run of the route
// opened it. A parking sink (stream.ParkingSink) keeps records in a store of its own and delivers
// them later.
type parkedBase struct {
	mu    sync.Mutex // guards the fields below
	known bool
	at    stream.ParkedCounts
}

// parkedCounts counts the records of a route with a stream.ParkingSink, which keeps records in a
// store of its own and delivers them later.
type parkedCounts struct {
	sink stream.ParkingSink // nil if the sink is not a ParkingSink
	base *parkedBase

	mu   sync.Mutex // guards the fields below
	open bool
}

// opened notes that the sink is open.
func (p *parkedCounts) opened() {
	if p.sink == nil {
		return
	}
	p.mu.Lock()
	p.open = true
	p.mu.Unlock()
	p.base.mu.Lock()
	defer p.base.mu.Unlock()
	if !p.base.known {
		p.base.known, p.base.at = true, p.sink.Parked()
	}
}

// add notes that a replay has stored n dead letters. They count as read by the route.
func (b *parkedBase) add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known { // otherwise the next Open counts them
		b.at.Waiting += n
	}
}

// store returns the store of the sink, or nil if the sink is not open.
func (p *parkedCounts) store() stream.DeliveryStore {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return nil
	}
	return p.sink.Deliveries()
}

// show corrects the counts of s. The route counts a record as delivered when the sink has parked
// it. show replaces this count by the numbers of records that the sink has since delivered,
// cancelled or dead-lettered, and of those that are still parked.
func (p *parkedCounts) show(s *status.Route) {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	if !open {
		return
	}
	p.base.mu.Lock()
	base := p.base.at
	p.base.mu.Unlock()
	addParked(s, base, p.sink.Parked())
}

// addParked corrects the counts of s by the change of the counts in the sink's store: from base,
// when the store was first opened, to now, the present counts. The store may briefly be ahead of
// the route's accounts. addParked then reduces the parked, dead and dropped records, so that the
// counts still add up to the records read.
func addParked(s *status.Route, base, now stream.ParkedCounts) {
	s.ReadRecords += base.Waiting
	rest := s.Delivered + base.Waiting
	take := func(n int64) int64 {
		n = max(0, min(n, rest))
		rest -= n
		return n
	}
	s.Parked = take(now.Waiting)
	s.Dead += take(now.Dead - base.Dead)
	s.Dropped += take(now.Cancelled - base.Cancelled)
	s.Delivered = rest
}

// append writes dead letters for records that a parking sink could not deliver.
func (r *letterWriter) append(ctx context.Context, given []stream.DeadLetter) error {
	letters := make([]deadletter.Letter, len(given))
	for i, l := range given {
		letters[i] = deadletter.Letter{
			ID: l.ID, Partition: l.Partition, File: l.File, Position: l.Position, Record: l.Record,
			Reason: stream.MaskURLs(l.Reason), Detail: stream.MaskURLs(l.Detail),
			Attempts: l.Attempts, Worker: l.Worker, History: l.History,
		}
	}
	if err := r.store.Append(ctx, letters); err != nil {
		return err
	}
	r.failures.countDeadLetters(letters, r.store.Path())
	return nil
}

// deliveries returns the routes with a parking sink and the stores of their deliveries, for the
// admin pages.
func (e *Engine) deliveries() (out []admin.DeliveryRoute) {
	for _, p := range e.pipelines() {
		for _, s := range p.routes() {
			s.mu.Lock()
			r := s.route
			s.mu.Unlock()
			if r == nil {
				continue
			}
			if store := r.parking.store(); store != nil {
				out = append(out, admin.DeliveryRoute{Name: s.key, Store: store})
			}
		}
	}
	return out
}
