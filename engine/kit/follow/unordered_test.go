package follow_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// unordered settles the batches of a route in random order, as several workers do. The progress of
// a route then has settled ranges above its watermark. When the route ends, batches that have not
// settled are forgotten: the next reader of the route must read them again, and nothing else.
type unordered struct {
	rnd    *rand.Rand
	parts  map[string]*account
	flight []*stream.Batch // in flight: read and not settled
}

// account is the account of one partition, as the engine keeps it.
type account struct {
	*ledger.Ledger
	end stream.Position // of the sealed file; zero: it is not sealed
}

func newUnordered(rnd *rand.Rand) *unordered {
	return &unordered{rnd: rnd, parts: make(map[string]*account)}
}

// limits returns the limits of the next batch. If the batches settle in random order, they are
// small, so that there are many.
func (r *route) limits() stream.BatchLimits {
	if r.unordered == nil {
		return stream.BatchLimits{}
	}
	return stream.BatchLimits{Bytes: 32 << r.unordered.rnd.IntN(3)}
}

// deliver sends b, and lets some of the batches in flight settle.
func (u *unordered) deliver(r *route, b *stream.Batch) {
	for i := range b.Spans {
		u.open(r, &b.Spans[i])
	}
	u.flight = append(u.flight, b)
	for len(u.flight) > 0 && u.rnd.IntN(3) > 0 {
		u.settle(r, u.rnd.IntN(len(u.flight)))
	}
}

func (u *unordered) open(r *route, span *stream.Span) {
	p := u.parts[span.Part.ID]
	if p == nil {
		m := r.marks[span.Part.ID]
		l, err := ledger.New(m.Watermark, m.Above)
		if err != nil {
			panic(fmt.Sprintf("the saved progress %+v: %v", m, err))
		}
		p = &account{Ledger: l}
		u.parts[span.Part.ID] = p
	}
	if err := p.Open(span.Range); err != nil {
		panic(fmt.Sprintf("partition %q: a span does not follow: %v", span.Part.Name, err))
	}
	if p.end = (stream.Position{}); span.Last {
		p.end = span.To
	}
}

// settle settles the batch in flight with index i, and saves the progress.
func (u *unordered) settle(r *route, i int) {
	b := u.flight[i]
	u.flight = slices.Delete(u.flight, i, i+1)
	for _, span := range b.Spans {
		p := u.parts[span.Part.ID]
		p.Settle(span.Range)
		m := stream.Mark{Part: *span.Part}
		m.Watermark, m.Above = p.Progress()
		m.Finished = p.end.Num > 0 && p.Pending() == 0 && len(m.Above) == 0
		r.save(m)
	}
	r.record(b)
}

// settleAll settles all batches in flight.
func (u *unordered) settleAll(r *route) {
	for len(u.flight) > 0 {
		u.settle(r, u.rnd.IntN(len(u.flight)))
	}
}
