package httpserver

import (
	nethttp "net/http"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// unitRecords is the unit in which the source grants its window, and in which Penstock's sinks
// declare the cost of a request.
const unitRecords = "records"

// priceBytes is the size that counts as at least one record: a body of 10 KiB costs at least 10
// records.
const priceBytes = 1 << 10

// service decides which requests count as being served. If slots is 0, these are all requests that
// a route has read. Otherwise, at most slots requests count at a time, in the order in which a
// route read them.
type service struct {
	slots int // 0: no limit

	mu      sync.Mutex // guards the fields below
	serving map[*flow.Arrival]bool
	waiting []*flow.Arrival
}

// read records that a route has read the request.
func (q *service) read(a *flow.Arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, a)
	q.serve()
}

// end records that the request is answered.
func (q *service) end(a *flow.Arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.serving, a)
	q.waiting = slices.DeleteFunc(q.waiting, func(o *flow.Arrival) bool { return o == a })
	q.serve()
}

// serve lets waiting requests count as served. The caller holds mu.
func (q *service) serve() {
	if q.serving == nil {
		q.serving = make(map[*flow.Arrival]bool)
	}
	for len(q.waiting) > 0 && (q.slots == 0 || len(q.serving) < q.slots) {
		q.serving[q.waiting[0]] = true
		q.waiting[0].Serve()
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}

// visit is a request from the viewpoint of the advertised window. A request waits from the arrival
// of its header until service counts it as being served. It is then served until the source
// responds. Requests of all clients count, but only clients that send [stream.SenderHeader] get the
// window.
type visit struct {
	s       *Server
	asked   bool
	arrival *flow.Arrival
	price   float64
}

// arrive begins a visit. Its cost is the one that the client has declared, until the records are
// known. A sender's name is unique only within its token or certificate, so that no client can use
// the window of another one.
func (s *Server) arrive(r *nethttp.Request, tenant string) *visit {
	o := flow.ParseSender(r)
	if o.Unit != unitRecords {
		o.Cost = 0
	}
	v := &visit{s: s, asked: r.Header.Get(stream.SenderHeader) != ""}
	v.price = max(1, o.Cost, float64(r.ContentLength)/priceBytes)
	v.arrival = s.window.Arrive(tenant+"\x00"+o.Name, v.price, o.Network)
	return v
}

// decoded replaces the declared cost by the real one.
func (v *visit) decoded(d *decoded) {
	v.price = max(1, float64(d.records.Len()), float64(d.records.Size()/priceBytes))
	v.arrival.Reprice(v.price)
}

// answer ends the visit and adds the window to the response header.
func (v *visit) answer(h nethttp.Header) {
	grant := v.arrival.Done()
	if !v.asked {
		return
	}
	grant.Cost, grant.Unit, grant.Draining = uint64(v.price), unitRecords, v.s.IsDraining()
	h.Set(stream.CreditHeader, grant.String())
}

// refuse adds the draining state to the response header of a request that was not delivered.
func (v *visit) refuse(h nethttp.Header) {
	if v.asked && v.s.IsDraining() {
		h.Set(stream.CreditHeader, v.s.window.Draining().String())
	}
}
