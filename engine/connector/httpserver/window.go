package httpserver

import (
	nethttp "net/http"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// unitRecords is the unit of the window that the source advertises: the number of records that it
// accepts from a sender. Penstock's sinks state the cost of a request in the same unit.
const unitRecords = "records"

// priceBytes sets the minimum cost of a request: one record for each priceBytes of its body.
// Example: a body of 10 KiB costs at least 10 records.
const priceBytes = 1 << 10

// service decides which requests count as being served. If slots is 0, each request counts from the
// time when a route reads it until it is answered. If slots is above 0, at most that many requests
// count at the same time. The others wait, in the order in which routes have read them.
type service struct {
	slots int // 0: no limit

	mu      sync.Mutex // guards the fields below
	serving map[*flow.Arrival]bool
	waiting []*flow.Arrival
}

// read is called when a route has read a request.
func (q *service) read(a *flow.Arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, a)
	q.serve()
}

// end is called when a request is answered.
func (q *service) end(a *flow.Arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.serving, a)
	q.waiting = slices.DeleteFunc(q.waiting, func(o *flow.Arrival) bool { return o == a })
	q.serve()
}

// serve moves requests from waiting to serving, in order, until q.slots of them are being served.
// If slots is 0, it moves all of them. The caller holds mu.
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

// visit is one request, for the computation of the window that the source advertises to senders.
// The request waits from the arrival of its header until service counts it as being served. It is
// then served until the source has responded. The requests of all clients count, but the source
// sends the window only to clients with [stream.SenderHeader].
type visit struct {
	s       *Server
	asked   bool
	arrival *flow.Arrival
	price   float64
}

// arrive begins a visit. Until the records are decoded, its cost is the number of records that the
// client has stated. The stated length of the body sets a minimum, see priceBytes. The name of a
// sender is combined with the name of the client's token or certificate. So another client cannot
// use the sender's share of the window by stating the same name.
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

// decoded replaces the cost that the client has stated by the cost of the decoded records.
func (v *visit) decoded(d *decoded) {
	v.price = max(1, float64(d.records.Len()), float64(d.records.Size()/priceBytes))
	v.arrival.Reprice(v.price)
}

// answer ends the visit, and adds the advertised window to the response's header.
func (v *visit) answer(h nethttp.Header) {
	grant := v.arrival.Done()
	if !v.asked {
		return
	}
	grant.Cost, grant.Unit, grant.Draining = uint64(v.price), unitRecords, v.s.IsDraining()
	h.Set(stream.CreditHeader, grant.String())
}

// refuse prepares the header of an error response. If the source drains, the header says so, but
// only to a client that has sent [stream.SenderHeader]. The request still counts for the window
// until the handler ends the visit.
func (v *visit) refuse(h nethttp.Header) {
	if v.asked && v.s.IsDraining() {
		h.Set(stream.CreditHeader, v.s.window.Draining().String())
	}
}
