package memory

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// SinkOptions are the options of a [Sink].
type SinkOptions struct {
	// Name is the name of the sink in a config. Empty means "memory". If an engine has several
	// sinks of this kind, they need different names.
	Name string
	// Deliver is called with each batch. It returns the outcome, as a [stream.Worker] does. Nil
	// means delivered. A *[stream.Rejected] causes dead letters. After an ordinary error, the batch
	// is retried with backoff. Deliver must not change the batch, and must not use it after it has
	// returned. The batch has been split, so b.Records is filled. Deliver only the kept records
	// ([stream.Batch.AppendKept]): the others were dropped or dead-lettered. If the field Deliver
	// is nil, [Sink.Records] returns the records.
	Deliver func(ctx context.Context, b *stream.Batch) error
	// Workers is the maximum number of concurrent calls of Deliver for a route. Zero means 1. With
	// 1, batches are delivered in the order in which they were read, unless a batch is delivered
	// again.
	Workers int
}

// Sink passes batches to a function, or records to a loop over [Sink.Records]. Its methods are safe
// for concurrent use. Several routes can use the same Sink, and deliver to it concurrently.
//
// A Sink has no queue: each route has at most Workers batches in flight, and a slow function or
// loop slows the route down. Delivery is at least once. Records may be repeated, for example if the
// process ends before the route has saved its progress, or if Deliver or the loop takes longer than
// `flow.timeout`.
type Sink struct {
	o     SinkOptions
	ready chan chan *handover // loops that wait for a batch send to it
}

// NewSink returns a sink.
func NewSink(o SinkOptions) *Sink {
	if o.Name == "" {
		o.Name = "memory"
	}
	o.Workers = max(1, o.Workers)
	return &Sink{o: o, ready: make(chan chan *handover)}
}

// Component returns the sink's entry for the engine's list of components. The component has no
// options.
func (s *Sink) Component() stream.Component {
	return stream.Component{
		Role: stream.SinkRole,
		Name: s.o.Name,
		New:  func(any, stream.Host) (any, error) { return &route{s}, nil },
	}
}

// Record is one record of a sink.
type Record struct {
	// ID identifies the record by its partition and position. If a record is delivered again, it
	// has the same ID.
	ID string
	// Data is the record's text or, if a processor has parsed the record, a JSON object. The caller
	// may keep and change it.
	Data []byte
}

// Records returns the records as they are delivered. When ctx is done, the loop ends after its
// current batch. Several loops can run concurrently; each record is passed to one of them. A batch
// counts as delivered when the loop has processed its last record and asks for the next record. If
// the loop ends earlier, the whole batch is delivered again.
//
// While no loop runs, the routes wait. This is backpressure, not a failure. Records is only for
// sinks without a Deliver function. With a Deliver function, the loop gets no records.
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

// each passes the records to yield, and reports the outcome of the batch even if yield panics.
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

// route is the use of a Sink in one run of a route.
type route struct{ sink *Sink }

// Open implements stream.Sink. It creates one lane with at most Workers batches in flight.
func (r *route) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: r.sink.o.Name, Worker: r, Limits: stream.Limits{InFlight: r.sink.o.Workers}}})
	return nil
}

// Close implements stream.Sink.
func (r *route) Close() error { return nil }

// Encodes implements stream.Encoder. Encode is called for every batch.
func (r *route) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. It encodes nothing. It only splits the batch into Records,
// which is safe here, because no other goroutine uses the batch yet.
func (r *route) Encode(_ []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	return nil, nil
}

// loopWait is the time for which Deliver waits for a loop before it reports backpressure. It must
// be shorter than the timeout of an attempt, because a timeout would count as a failure of the
// worker.
const loopWait = 50 * time.Millisecond

var errNoLoop = errors.New("memory sink: nobody loops over Records")

// Deliver implements stream.Worker. It calls the function Deliver of the options, or passes the
// records to a loop over [Sink.Records].
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
	want <- h // never blocks: want has a buffer of 1
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
