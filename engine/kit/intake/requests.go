package intake

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// maxRequests is the default of Options.MaxRequests.
const maxRequests = 128 << 10

// Identify makes the data of this reservation a partition of its own, named by id. If data with the
// same id is submitted again, routes skip it if they remember that they have settled it (see
// [Options].Remember), even after a restart. If an earlier submission with this id is not settled
// yet, Submit returns the earlier submission.
//
// id must identify the data: different data needs a different id. It has at most 128 bytes of
// printable ASCII without space, comma, semicolon, '@' and '"'. Call Identify before Submit.
func (r *Reservation) Identify(id string) { r.request = stream.RequestPrefix + id }

// RequestName returns the partition name of a request that arrives at the time now. The name
// contains this time in seconds.
func RequestName(now time.Time) string { return "request of " + now.UTC().Format(time.RFC3339) }

// RequestTime returns the time of arrival in the partition name of a request. If the name contains
// no time, RequestTime returns now. Names without a time occur, for example, after the local state
// was lost.
func RequestTime(name string, now time.Time) time.Time {
	const prefix = len("request of ")
	if len(name) > prefix {
		if t, err := time.Parse(time.RFC3339, name[prefix:]); err == nil {
			return t
		}
	}
	return now
}

// requests is one route's progress in identified requests ([Reservation.Identify]). The zero value
// is empty.
type requests struct {
	by    map[string]*request
	order []*request // in the order of note; by time after sort
}

type request struct {
	settled
	id   string
	time time.Time
}

// of returns the route's progress in the request with the given id. If the route does not remember
// the request, the progress is empty: the route has settled no part of the request.
func (q *requests) of(id string) *settled {
	if e := q.by[id]; e != nil {
		return &e.settled
	}
	return new(settled)
}

// note updates the progress of the request that the partition of m belongs to.
func (q *requests) note(m stream.Mark) {
	e := q.by[m.Part.ID]
	if e == nil {
		if q.by == nil {
			q.by = make(map[string]*request)
		}
		e = &request{id: m.Part.ID, time: RequestTime(m.Part.Name, time.Now())}
		q.by[e.id] = e
		q.order = append(q.order, e)
	}
	e.note(m)
}

// sort orders the requests by the time of their arrival.
func (q *requests) sort() {
	slices.SortFunc(q.order, func(a, b *request) int { return a.time.Compare(b.time) })
}

// Requests returns a route's progress in the identified requests that it remembers, roughly in the
// order of their arrival.
func (i *Intake) Requests(route string) []stream.Mark {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.routes[route]
	if p == nil {
		return nil
	}
	marks := make([]stream.Mark, 0, len(p.requests.order))
	for _, e := range p.requests.order {
		m := stream.Mark{Part: stream.Partition{ID: e.id, Name: RequestName(e.time)}, Above: e.above}
		m.Watermark.Num = e.watermark
		marks = append(marks, m)
	}
	return marks
}

// expire removes the oldest requests. First it removes those that arrived before the given time.
// Then it removes further ones until the number of remaining requests is at most the argument most.
// It stops at the first request in working, the map of requests with unsettled data. It returns
// gone with the ids of the removed requests appended.
func (q *requests) expire(
	gone []string, before time.Time, most int, working map[string]*Submission,
) []string {
	n := 0
	for n < len(q.order) && (q.order[n].time.Before(before) || len(q.order)-n > most) &&
		working[q.order[n].id] == nil {
		gone = append(gone, q.order[n].id)
		delete(q.by, q.order[n].id)
		n++
	}
	q.order = slices.Delete(q.order, 0, n)
	return gone
}
