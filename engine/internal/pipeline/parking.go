package pipeline

import (
	"sync"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// parkedBase has the counts of the store in which a parking sink (stream.ParkingSink) keeps records
// that it delivers later. The counts are those at the time when the first run of the route opened
// the store, plus the dead letters that replays have parked since. The difference to the present
// counts belongs to this process.
type parkedBase struct {
	mu       sync.Mutex // guards the fields below
	opener   *route     // the run that has opened its sink last; nil if none
	at       stream.ParkedCounts
	replayed int64 // dead letters that a replay has parked since opener opened its sink
}

// opened notes that the sink of a run is open.
func (b *parkedBase) opened(r *route) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opener == nil {
		b.at = r.parking.Parked() // includes the replayed letters
	} else {
		b.at.Waiting += b.replayed
	}
	b.opener, b.replayed = r, 0
}

// add notes that a replay has parked n dead letters (stored them for a later delivery). They count
// as read by the route as soon as the route has opened its sink again, because the counts of the
// closed sink do not include them.
func (b *parkedBase) add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replayed += n
}

// store returns the store of the sink of a run, or nil if the run has not opened its sink.
func (b *parkedBase) store(r *route) stream.DeliveryStore {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r == nil || b.opener != r {
		return nil
	}
	return r.parking.Deliveries()
}

// show corrects the counts of s. The route counts a record as delivered when the sink has parked
// it. show replaces this count by the numbers of records that the sink has since delivered,
// cancelled or dead-lettered, and of those that are still parked. While the sink of a restarting
// route is not open, show uses the last counts of the previous sink, which is closed.
func (b *parkedBase) show(s *status.Route) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opener != nil {
		addParked(s, b.at, b.opener.parking.Parked())
	}
}

// addParked corrects the counts of s by the change of the counts in the sink's store: from base,
// when the store was first opened, to now, the present counts. The sink's store may briefly count a
// record that the route does not count yet. addParked then reduces the parked, dead and dropped
// records, so that the counts still add up to the records read.
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

// deliveries returns the routes with a parking sink and the stores of their deliveries, for the
// admin pages.
func (e *Engine) deliveries() (out []admin.DeliveryRoute) {
	for s := range e.slots() {
		s.mu.Lock()
		r := s.route
		s.mu.Unlock()
		if store := s.parkedBase.store(r); store != nil {
			out = append(out, admin.DeliveryRoute{Name: s.key, Store: store})
		}
	}
	return out
}
