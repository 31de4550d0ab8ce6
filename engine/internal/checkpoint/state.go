//penstock:pure

package checkpoint

import (
	"github.com/penstock-io/penstock/stream"
)

// state is the result of all entries read or written so far. It also assigns numbers to routes,
// partitions and lanes (one for each worker). The same entries always lead to the same numbers.
type state struct {
	routes []*route // a route's number is its index + 1
	byKey  map[string]*route
	marks  int   // number of partitions with progress
	live   int64 // upper bound of the size of a snapshot in bytes
}

type route struct {
	key    string
	number int
	parts  []*part // a partition's number is its index + 1
	byID   map[string]*part
	lanes  []*lane
	byName map[string]*lane
}

type part struct {
	number int
	mark   stream.Mark
	gone   bool   // deleted
	stamp  uint64 // number of the last Append or Forget with this item; for the writer only
}

type lane struct {
	number int
	name   string
	place  string // resume token; "" if deleted
}

// Upper bounds of the bytes that an item uses in a snapshot: a partition, a settled range, the keys
// of a watermark or of a range, the resume token of a worker (lane), a route, and the header with
// the end. The bounds include numbers, flags and the lengths of strings, but not the strings.
const (
	partCost     = 29
	rangeCost    = 20
	keyCost      = 20
	laneCost     = 30
	routeCost    = 60
	snapshotCost = headerSize + 40
)

func newState() *state { return &state{byKey: make(map[string]*route), live: snapshotCost} }

func (st *state) route(number int, key string) *route {
	if number > 0 {
		return st.routes[number-1]
	}
	// A file that was manipulated may define a route with this key twice. The route then has two
	// numbers.
	if r := st.byKey[key]; r != nil {
		st.routes = append(st.routes, r)
		return r
	}
	r := &route{key: key, number: len(st.routes) + 1, byID: make(map[string]*part),
		byName: make(map[string]*lane)}
	st.routes = append(st.routes, r)
	st.byKey[key] = r
	st.live += routeCost + int64(len(key))
	return r
}

// apply applies entry e. It copies the slices of e that it keeps.
func (st *state) apply(e *entry) {
	r := st.route(e.route, e.key)
	for i := range e.marks {
		st.set(r, &e.marks[i])
	}
	for i := range e.places {
		op := &e.places[i]
		l := r.lane(op)
		st.live += laneSize(op.place, l.name) - laneSize(l.place, l.name)
		l.place = op.place
	}
}

func laneSize(place, name string) int64 {
	if place == "" {
		return 0
	}
	return laneCost + int64(len(place)+len(name))
}

func (r *route) lane(op *placeOp) *lane {
	if op.lane > 0 {
		return r.lanes[op.lane-1]
	}
	l := r.byName[op.name]
	if l == nil {
		l = &lane{number: len(r.lanes) + 1, name: op.name}
		r.byName[op.name] = l
	}
	r.lanes = append(r.lanes, l)
	return l
}

// set stores the progress of one partition. If an entry defines the partition again, for example
// twice in one Append, the partition gets a second number, and both numbers refer to it.
func (st *state) set(r *route, op *markOp) {
	var p *part
	if op.part > 0 {
		p = r.parts[op.part-1]
	} else {
		id := op.mark.Part.ID
		if p = r.byID[id]; p == nil {
			p = &part{number: len(r.parts) + 1}
			p.mark.Part.ID = id
			r.byID[id] = p
			st.marks++
			st.live += markSize(&p.mark)
		}
		r.parts = append(r.parts, p)
	}
	m := &p.mark
	st.live -= markSize(m)
	if op.named || op.part == 0 {
		m.Part.Name = op.mark.Part.Name
	}
	m.Watermark, m.Finished, m.Metadata = op.mark.Watermark, op.mark.Finished, op.mark.Metadata
	m.Waiting = op.mark.Waiting
	m.Above = append(m.Above[:0], op.mark.Above...)
	st.live += markSize(m)
}

// markSize is the upper bound of the size of a partition's progress in a snapshot, in bytes.
func markSize(m *stream.Mark) int64 {
	n := partCost + len(m.Part.ID) + len(m.Part.Name) + rangeCost*len(m.Above) + len(m.Metadata)
	if hasKeys(m) {
		n += keyCost + len(m.Watermark.Key)
		for _, r := range m.Above {
			n += keyCost + len(r.From.Key) + len(r.To.Key)
		}
	}
	return int64(n)
}

func (st *state) forget(f *forget) {
	r := st.routes[f.route-1]
	for _, n := range f.parts {
		p := r.parts[n-1]
		if p.gone {
			continue
		}
		delete(r.byID, p.mark.Part.ID)
		st.marks--
		st.live -= markSize(&p.mark)
		p.gone, p.mark = true, stream.Mark{}
	}
}

// renumber removes deleted routes, partitions and lanes (workers), and numbers the others from 1. A
// snapshot of the state stores them under these numbers.
func (st *state) renumber() {
	st.routes = st.alive()
	clear(st.byKey)
	st.live = snapshotCost
	for i, r := range st.routes {
		r.parts, r.lanes = r.live(), r.placed()
		r.number = i + 1
		st.byKey[r.key] = r
		st.live += routeCost + int64(len(r.key))
		for i, p := range r.parts {
			p.number = i + 1
			st.live += markSize(&p.mark)
		}
		clear(r.byName)
		for i, l := range r.lanes {
			l.number = i + 1
			r.byName[l.name] = l
			st.live += laneSize(l.place, l.name)
		}
	}
}

// alive returns the routes that have progress or resume tokens, each once, in order.
func (st *state) alive() []*route {
	var list []*route
	for i, r := range st.routes {
		if r.number == i+1 && (len(r.byID) > 0 || len(r.placed()) > 0) {
			list = append(list, r)
		}
	}
	return list
}

// live returns the partitions that were not deleted, each once, in order.
func (r *route) live() []*part {
	list := make([]*part, 0, len(r.byID))
	for i, p := range r.parts {
		if !p.gone && p.number == i+1 {
			list = append(list, p)
		}
	}
	return list
}

// placed returns the lanes that have a resume token, each once, in order.
func (r *route) placed() []*lane {
	var list []*lane
	for i, l := range r.lanes {
		if l.number == i+1 && l.place != "" {
			list = append(list, l)
		}
	}
	return list
}

// size returns the numbers of marks and resume tokens in a snapshot.
func (st *state) size() (marks, places int) {
	for _, r := range st.alive() {
		places += len(r.placed())
	}
	return st.marks, places
}

func (st *state) places(key string) map[string]string {
	places := make(map[string]string)
	if r := st.byKey[key]; r != nil {
		for _, l := range r.placed() {
			places[l.name] = l.place
		}
	}
	return places
}
