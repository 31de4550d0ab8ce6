// Package requests tests SQL sinks that receive the same request through several processes (see
// [stream.RequestSource]). The processes share a ledger, the list of delivered data in the sink's
// database. From it, each process must recognize the data that another one has stored, so that each
// record is in the table once.
package requests

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
)

// Sink is a sink with a ledger.
type Sink interface {
	stream.Sink
	stream.TransactionalSink
}

// Receiver is a database with the tables one and two, which have the column message.
type Receiver struct {
	// New creates a sink for a table. ledger is the option of this name.
	New func(h stream.Host, table, ledger string) (Sink, error)
	// Column returns the first column of a query as text. The query names the tables of the ledger
	// without their schema.
	Column func(t testing.TB, query string) []string
	// Deadlocks must be set if the database may end a transaction because of a deadlock even if all
	// transactions lock rows in the same order.
	Deadlocks bool
}

// Ledger checks the ledger with processes that share a database.
func Ledger(t *testing.T, start func(t *testing.T) Receiver) {
	for name, test := range map[string]func(t *testing.T, r Receiver){
		"recognized": recognized, "restarted": restarted, "other destination": otherDestination,
		"overlap": overlap, "pruned": pruned, "expired": expired,
		"converted": converted, "refused": refused,
		"thousands": thousands, "random sets": randomSets,
	} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// keep is the time for which the progress of requests is kept.
const keep = time.Hour

// target is the destination of a process.
type target struct{ pipeline, table, ledger string }

var one = target{"p", "one", ""}

// process is one sink.
type process struct {
	*connectortest.SinkProcess[Sink]
}

// open starts a process with a partition of its own. It returns the progress in the ledger.
func open(t *testing.T, r Receiver, own string, to target) (*process, []stream.Mark) {
	t.Helper()
	p := prepare(t, r, to, stream.SinkOptions{Own: own, Keep: keep})
	marks, err := p.Sink.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, marks
}

// prepare opens a sink, but does not load its ledger.
func prepare(t *testing.T, r Receiver, to target, o stream.SinkOptions) *process {
	t.Helper()
	o.Pipeline = to.pipeline
	newSink := func(h stream.Host) (Sink, error) { return r.New(h, to.table, to.ledger) }
	return &process{connectortest.OpenSink(t, newSink, o)}
}

// width is the number of bytes of a record. Record n of a request ends at the position n*width.
const width = 12

// span is a range of records of a request.
type span struct {
	request  string
	from, to int
}

// batchOf returns a batch of the records, whose requests have arrived at the given time.
func batchOf(arrival time.Time, spans ...span) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	for _, s := range spans {
		begun := len(b.Data)
		for n := s.from + 1; n <= s.to; n++ {
			b.Data = fmt.Appendf(b.Data, "%-6s-%04d\n", s.request, n)
		}
		b.Origins += s.to - s.from
		b.Spans = append(b.Spans, stream.Span{Part: partOf(s.request, arrival),
			Bytes: len(b.Data) - begun,
			Range: stream.Range{From: at(s.from), To: at(s.to)}})
	}
	b.Split()
	return b
}

func at(record int) stream.Position { return stream.Position{Num: int64(record * width)} }

func partOf(request string, arrival time.Time) *stream.Partition {
	return &stream.Partition{ID: stream.RequestPrefix + request,
		Name: "request of " + arrival.UTC().Format(time.RFC3339)}
}

// mustDeliver delivers a batch with the spans as deliverAll does. An error fails the test.
func (p *process) mustDeliver(spans ...span) {
	p.T.Helper()
	if err := p.deliverAll(batchOf(time.Now(), spans...)); err != nil {
		p.T.Errorf("%v: %v", spans, err)
	}
}

// deliverAll delivers a batch. If the sink delivers only a part of the batch and returns a
// [stream.Split], deliverAll delivers the remaining pieces, as the engine does.
func (p *process) deliverAll(b *stream.Batch) error {
	err := p.Deliver(b)
	split, ok := errors.AsType[*stream.Split](err)
	if !ok {
		return err
	}
	for _, rest := range split.Rest {
		if err := p.deliverAll(rest.Value); err != nil {
			return err
		}
	}
	return nil
}

// has checks that a table has exactly the records of the spans, once for each span.
func has(t *testing.T, r Receiver, table string, spans ...span) {
	t.Helper()
	var want []string
	for _, s := range spans {
		for n := s.from + 1; n <= s.to; n++ {
			want = append(want, fmt.Sprintf("%-6s-%04d", s.request, n))
		}
	}
	got := r.Column(t, "SELECT message FROM "+table)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("table %s has %d rows, want %d: %.200q", table, len(got), len(want), got)
	}
}

// recognized checks that a request which one process has stored is not stored again by another.
func recognized(t *testing.T, r Receiver) {
	a, _ := open(t, r, "intake-a", one)
	b, _ := open(t, r, "intake-b", one)
	a.mustDeliver(span{"r1", 0, 3})
	b.mustDeliver(span{"r1", 0, 3}, span{"r2", 0, 2})
	a.mustDeliver(span{"r2", 0, 2})
	if err := a.Sink.Store(t.Context(), batchOf(time.Now(), span{"r3", 0, 5}).Spans); err != nil {
		t.Error(err) // as for records that were all dropped
	}
	b.mustDeliver(span{"r3", 0, 5})
	has(t, r, "one", span{"r1", 0, 3}, span{"r2", 0, 2})
}

// restarted starts a process again under the same name. The new one must fence the earlier one, but
// no other process. The new process must recognize the delivered requests of all processes.
func restarted(t *testing.T, r Receiver) {
	a, _ := open(t, r, "intake-a", one)
	b, _ := open(t, r, "intake-b", one)
	a.mustDeliver(span{"r1", 0, 3})
	b.mustDeliver(span{"r2", 0, 3})
	again, marks := open(t, r, "intake-a", one)
	if len(marks) != 2 || marks[0].Watermark != at(3) || marks[1].Watermark != at(3) {
		t.Errorf("the next start gets %+v", marks)
	}
	if err := a.Deliver(batchOf(time.Now(), span{"r4", 0, 1})); !errors.Is(err,
		stream.ErrTakenOver) {
		t.Errorf("a stale process gets %v", err)
	}
	_ = a.Host.Stop() // its goroutines end with the same error
	b.mustDeliver(span{"r5", 0, 1})
	again.mustDeliver(span{"r1", 0, 3}, span{"r6", 0, 1})
	has(t, r, "one", span{"r1", 0, 3}, span{"r2", 0, 3}, span{"r5", 0, 1}, span{"r6", 0, 1})
}

// otherDestination checks that the ledger stores requests separately for each table and each
// pipeline. If the table or the pipeline is another one, the same request is delivered again, even
// if the option `ledger` has the same value.
func otherDestination(t *testing.T, r Receiver) {
	first, _ := open(t, r, "intake-a", target{"p", "one", "same"})
	first.mustDeliver(span{"r1", 0, 3})
	table, _ := open(t, r, "intake-b", target{"p", "two", "same"})
	table.mustDeliver(span{"r1", 0, 3})
	has(t, r, "two", span{"r1", 0, 3})
	pipeline, marks := open(t, r, "intake-c", target{"other", "one", "same"})
	if len(marks) > 0 {
		t.Errorf("another pipeline gets %+v", marks)
	}
	pipeline.mustDeliver(span{"r1", 0, 3})
	has(t, r, "one", span{"r1", 0, 3}, span{"r1", 0, 3})
	first.mustDeliver(span{"r2", 0, 1}) // it was not fenced
	has(t, r, "one", span{"r1", 0, 3}, span{"r1", 0, 3}, span{"r2", 0, 1})
}

// overlap delivers batches of which some records are stored already.
func overlap(t *testing.T, r Receiver) {
	a, _ := open(t, r, "intake-a", one)
	b, _ := open(t, r, "intake-b", one)
	a.mustDeliver(span{"r1", 0, 4})
	a.mustDeliver(span{"r1", 6, 8})
	b.mustDeliver(span{"r1", 2, 7})
	b.mustDeliver(span{"r1", 0, 10})
	a.mustDeliver(span{"r2", 0, 1}, span{"r1", 4, 12}, span{"r3", 0, 2})
	b.mustDeliver(span{"r3", 1, 3}, span{"r2", 0, 1})
	a.mustDeliver(span{"r4", 3, 5}) // a part that does not begin at 0
	b.mustDeliver(span{"r4", 0, 6})
	has(t, r, "one", span{"r1", 0, 12}, span{"r2", 0, 1}, span{"r3", 0, 3}, span{"r4", 0, 6})
	marks := []stream.Mark{{Part: *partOf("r1", time.Now()), Watermark: at(12)}}
	if err := a.Sink.Compact(t.Context(), marks); err != nil {
		t.Error(err)
	}
	b.mustDeliver(span{"r1", 3, 12})
	_, loaded := open(t, r, "intake-c", one)
	for i, want := range []int{12, 1, 3, 6} {
		if loaded[i].Watermark != at(want) || len(loaded[i].Above) > 0 {
			t.Errorf("the next process gets %+v, want records up to %d", loaded[i], want)
		}
	}
	has(t, r, "one", span{"r1", 0, 12}, span{"r2", 0, 1}, span{"r3", 0, 3}, span{"r4", 0, 6})
}
