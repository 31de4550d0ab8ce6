package pipeline

import (
	"context"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// parkedBase belongs to a route with a parking sink (stream.ParkingSink), which keeps records in a
// store of its own and delivers them later. It has the counts of the store from the time when the
// first run of the route opened it.
type parkedBase struct {
	mu       sync.Mutex         // guards the fields below
	sink     stream.ParkingSink // opened last; after its Close, it has its last counts; nil if none
	at       stream.ParkedCounts
	replayed int64 // dead letters that a replay has parked since sink was opened
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
	p.base.opened(p.sink)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
}

func (b *parkedBase) opened(sink stream.ParkingSink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sink == nil {
		b.at = sink.Parked() // includes the replayed letters
	} else {
		b.at.Waiting += b.replayed
	}
	b.sink, b.replayed = sink, 0
}

// add notes that a replay has parked n dead letters. They count as read by the route as soon as the
// route has opened its sink again, because the counts of the closed sink do not include them.
func (b *parkedBase) add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replayed += n
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
// cancelled or dead-lettered, and of those that are still parked. While the sink of a restarting
// route is not open, it uses the last counts of the previous one.
func (b *parkedBase) show(s *status.Route) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sink != nil {
		addParked(s, b.at, b.sink.Parked())
	}
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
