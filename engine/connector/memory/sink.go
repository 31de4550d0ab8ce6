package memory

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// SinkOptions are options of a [Sink].
type SinkOptions struct {
	// Name is the sink's key in a config. Empty means "memory". Sinks of one engine with different
	// functions need different names.
	Name string
	// Deliver takes a batch. Its return value is the outcome, as for [stream.Worker]: nil means
	// delivered, a *[stream.Rejected] makes dead letters, and any other error is retried with
	// backoff. The batch is read-only, its Records are filled, and it must not be used after
	// Deliver has returned. If Deliver is nil, [Sink.Records] takes the records.
	Deliver func(ctx context.Context, b *stream.Batch) error
	// Workers is the number of concurrent deliveries of a route. Zero means 1, which keeps the
	// order in which the records were read, unless a batch is delivered again.
	Workers int
}

// Sink passes batches to a function, or records to a loop over [Sink.Records]. Its methods are safe
// for concurrent use. Routes that share it deliver concurrently.
//
// A sink has no queue: at most Workers batches of each route are in flight, and a slow function or
// loop slows the route down. Delivery is at least once: records may be repeated if the process ends
// before the route has saved its progress, or if Deliver or the loop takes longer than
// `flow.timeout`.
type Sink struct {
	o     SinkOptions
	ready chan chan *handover // sent by loops that want a batch
}

// NewSink returns a sink.
func NewSink(o SinkOptions) *Sink {
	if o.Name == "" {
		o.Name = "memory"
	}
	o.Workers = max(1, o.Workers)
	return &Sink{o: o, ready: make(chan chan *handover)}
}

// Component returns the sink's entry in an engine's list of components. It has no options.
func (s *Sink) Component() stream.Component {
	return stream.Component{
		Role: stream.SinkRole,
		Name: s.o.Name,
		New:  func(any, stream.Host) (any, error) { return &route{s}, nil },
	}
}

// Record is one record of a sink.
type Record struct {
	// ID identifies the record by its partition and position. A record that is delivered again has
	// the same ID.
	ID string
	// Data is the record's text or, if a processor has parsed it, a JSON object. It belongs to the
	// caller.
	Data []byte
}

// Records returns the records as they are delivered, until ctx is done. Several loops share them. A
// batch counts as delivered when the loop has got the batch's last record and asks for another one.
// A loop that ends earlier returns the whole batch, which is then delivered again.
//
// While there is no loop, the routes wait. This is backpressure, not a failure. Records is for
// sinks without a Deliver function. If there is one, the loop gets no records.
func (s *Sink) Records(ctx context.Context) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for ctx.Err() == nil {
			want := make(chan *handover, 1)
			select {
			case s.ready <- want:
			case <-ctx.Done():
				return
			}
			if h := <-want; !h.each(yield) {
				return
			}
		}
	}
}

// handover is a batch that is passed to a loop.
type handover struct {
	records []Record
	outcome chan error // buffer of 1
}

var errLoopLeft = errors.New("memory sink: the loop was left before the end of the batch")

// each yields the records and reports the outcome, even if yield panics.
func (h *handover) each(yield func(Record) bool) bool {
	outcome := errLoopLeft
	defer func() { h.outcome <- outcome }()
	for _, r := range h.records {
		if !yield(r) {
			return false
		}
	}
	outcome = nil
	return true
}

// route is a Sink during one run of a route.
type route struct{ sink *Sink }

// Open implements stream.Sink.
func (r *route) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: r.sink.o.Name, Worker: r, Limits: stream.Limits{InFlight: r.sink.o.Workers}}})
	return nil
}

// Close implements stream.Sink.
func (r *route) Close() error { return nil }

// Encodes implements stream.Encoder.
func (r *route) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. It encodes nothing. It splits the batch into Records while the
// batch has a single owner.
func (r *route) Encode(_ []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	return nil, nil
}

// loopWait is the time that Deliver waits for a loop. It is shorter than a timeout, which would
// count as a failure of the worker.
const loopWait = 50 * time.Millisecond

var errNoLoop = errors.New("memory sink: nobody loops over Records")

// Deliver implements stream.Worker.
func (r *route) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	if ctx.Err() != nil {
		return stream.Report{}, context.Cause(ctx)
	}
	if a.Value.Kept() == 0 {
		return stream.Report{}, nil
	}
	if r.sink.o.Deliver != nil {
		return stream.Report{}, r.sink.o.Deliver(ctx, a.Value)
	}
	return stream.Report{}, r.sink.handOver(ctx, a.Value)
}

// handOver passes the batch to a loop and waits for the outcome.
func (s *Sink) handOver(ctx context.Context, b *stream.Batch) error {
	timer := time.NewTimer(loopWait)
	defer timer.Stop()
	var want chan *handover
	select {
	case want = <-s.ready:
	case <-timer.C:
		return &stream.Throttled{After: loopWait, Err: errNoLoop}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	h := &handover{records: recordsOf(b), outcome: make(chan error, 1)}
	want <- h // never blocks: buffer of 1
	select {
	case err := <-h.outcome:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recordsOf copies the kept records of b.
func recordsOf(b *stream.Batch) []Record {
	var data, ids []byte
	kept := b.AppendKept(nil)
	ends, idEnds := make([]int, len(kept)), make([]int, len(kept))
	for n, i := range kept {
		if b.Records[i].Parsed {
			data = ndjson.AppendRecord(data, b, i)
		} else {
			data = append(data, b.Text(i)...)
		}
		ids = b.AppendRecordID(ids, i)
		ends[n], idEnds[n] = len(data), len(ids)
	}
	records, from, idFrom, allIDs := make([]Record, len(kept)), 0, 0, string(ids)
	for n := range kept {
		records[n] = Record{ID: allIDs[idFrom:idEnds[n]], Data: data[from:ends[n]:ends[n]]}
		from, idFrom = ends[n], idEnds[n]
	}
	return records
}
