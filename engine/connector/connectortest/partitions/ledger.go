// Package partitions tests sinks that implement [stream.PartitionLedger]: sinks with a ledger that
// several processes share. Each process owns some of the partitions. [Ledger] checks the contract
// of the interface. [Moves] runs engines and moves partitions between them.
package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// Sink is a sink that implements [stream.PartitionLedger].
type Sink interface {
	stream.Sink
	stream.PartitionLedger
}

// Receiver is the table to which several sinks write.
type Receiver struct {
	// New creates another sink for the table, as another process would.
	New func(h stream.Host) (Sink, error)
	// Received returns the text of each row, in any order. The table has the column message.
	Received func(t testing.TB) []string
	// Block makes writes to the table wait inside their open transactions, until release is called.
	// Block is nil for tables at which the test cannot make writes wait.
	Block func(t testing.TB) (release func())
	// Part returns the partition for an id that the tests use: x, y, z, lost, p0 to p249 and,
	// unless PartitionsOnly is set, letter.a and letter.b. Part is nil if the sink accepts any
	// partition.
	Part func(id string) stream.Partition
	// PartitionsOnly means that the ledger cannot have a single owner, so that Load always fails.
	PartitionsOnly bool
	// Evicts bounds the time in which Take ends a hanging transaction of an earlier owner.
	Evicts time.Duration
}

// patience is the maximum time for the commit of all progress, and for the end of an engine.
const patience = 30 * time.Second

// process is a sink in the role of one process.
type process struct {
	*connectortest.SinkProcess[Sink]
	r Receiver
}

func open(t *testing.T, r Receiver) *process {
	t.Helper()
	return openWith(t, r, stream.SinkOptions{})
}

func openWith(t *testing.T, r Receiver, o stream.SinkOptions) *process {
	t.Helper()
	o.Pipeline = "p"
	return &process{connectortest.OpenSink(t, r.New, o), r}
}

func (r *Receiver) part(id string) stream.Partition {
	if r.Part != nil {
		return r.Part(id)
	}
	return stream.Partition{ID: id, Name: "orders/" + id}
}

func at(n int) stream.Position { return stream.Position{Num: int64(n)} }

// take calls Take for one partition: from then on, earlier owners can store nothing in it. number
// identifies the assignment, the period in which this process owns the partition. start is the
// progress to store if the ledger does not have the partition. If confirm is set, take also calls
// Confirm. Without Confirm, this process may not deliver to the partition either.
func (p *process) take(number uint32, id string, start stream.Mark, confirm bool) stream.Taken {
	p.T.Helper()
	taken, err := p.Sink.Take(p.T.Context(),
		[]stream.Taking{{Assignment: number, Part: p.r.part(id), Start: start}})
	if err != nil || len(taken) != 1 {
		p.T.Fatalf("Take: %v, %v", taken, err)
	}
	if confirm {
		p.Sink.Confirm([]uint32{number})
	}
	return taken[0]
}

// batch returns a batch with the records of a partition that have numbers in (from, to].
func (p *process) batch(number uint32, id string, from, to int) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	for n := from + 1; n <= to; n++ {
		b.Data = fmt.Appendf(b.Data, "%s-%03d\n", id, n)
	}
	b.Origins = to - from
	held := p.r.part(id)
	b.Spans = append(b.Spans, stream.Span{Part: &held, Assignment: number, Bytes: len(b.Data),
		Range: stream.Range{From: at(from), To: at(to)}})
	b.Split()
	return b
}

func (p *process) delivers(number uint32, id string, from, to int) {
	p.T.Helper()
	if err := p.Deliver(p.batch(number, id, from, to)); err != nil {
		p.T.Errorf("records %d to %d of %s: %v", from+1, to, id, err)
	}
}

func (p *process) fenced(number uint32, id string, from, to int) {
	p.T.Helper()
	b := p.batch(number, id, from, to)
	for _, err := range []error{p.Deliver(b), p.Sink.Store(p.T.Context(), b.Spans)} {
		f, ok := errors.AsType[*stream.FencedError](err)
		if !ok || f.Assignment != number || f.Part.ID != p.r.part(id).ID {
			p.T.Errorf("records %d to %d of %s: %v, want a FencedError", from+1, to, id, err)
		}
	}
}

// Ledger checks the contract of [stream.PartitionLedger] with processes that share a table.
func Ledger(t *testing.T, start func(t *testing.T) Receiver) {
	t.Run("two owners", func(t *testing.T) { twoOwners(t, start(t)) })
	t.Run("confirmation", func(t *testing.T) { confirmation(t, start(t)) })
	t.Run("progress", func(t *testing.T) { progress(t, start(t)) })
	t.Run("ledger of one owner", func(t *testing.T) {
		if r := start(t); !r.PartitionsOnly {
			oneOwner(t, r)
		}
	})
	t.Run("late transaction", func(t *testing.T) { lateTransaction(t, start(t)) })
	t.Run("many partitions", func(t *testing.T) { manyPartitions(t, start(t)) })
}

// twoOwners checks that owners of different partitions do not fence each other, and that a new
// owner of a partition fences the previous one.
func twoOwners(t *testing.T, r Receiver) {
	a, b := open(t, r), open(t, r)
	a.take(1, "x", stream.Mark{}, true)
	a.delivers(1, "x", 0, 3)
	b.take(1, "y", stream.Mark{}, true)
	b.delivers(1, "y", 0, 2)
	a.delivers(1, "x", 3, 5)
	a.delivers(1, "x", 3, 5) // again, as after a lost response
	moved := b.take(2, "x", stream.Mark{}, true)
	if !moved.Found || moved.Mark.Watermark != at(5) || moved.Mark.Part != r.part("x") {
		t.Errorf("the next owner gets %+v", moved)
	}
	a.fenced(1, "x", 5, 7)
	if err := a.Sink.Compact(t.Context(), []stream.Mark{
		{Part: r.part("x"), Assignment: 1, Watermark: at(9)}}); err != nil {
		t.Error(err)
	}
	b.delivers(2, "x", 5, 8)
	b.Sink.Release([]uint32{1})
	b.fenced(1, "y", 2, 4)
	if again := a.take(7, "x", stream.Mark{}, true); again.Mark.Watermark != at(8) {
		t.Errorf("the owner after that gets %+v: was the mark of an earlier one folded?", again)
	}
	check(t, r, 10, "x-", 8)
}

// check fails the test unless the table has total rows, and n of them begin with prefix.
func check(t *testing.T, r Receiver, total int, prefix string, n int) {
	t.Helper()
	rows := r.Received(t)
	slices.Sort(rows)
	own := 0
	for _, row := range rows {
		if len(row) > len(prefix) && row[:len(prefix)] == prefix {
			own++
		}
	}
	if len(rows) != total || own != n {
		t.Errorf("the table has %d rows, %d of them %s: %q; want %d and %d", len(rows), own, prefix,
			rows, total, n)
	}
}

// confirmation checks that nothing is written before Confirm, even if an earlier assignment was
// confirmed.
func confirmation(t *testing.T, r Receiver) {
	a := open(t, r)
	a.take(1, "x", stream.Mark{}, false)
	a.fenced(1, "x", 0, 2)
	a.fenced(2, "x", 0, 2)
	a.Sink.Confirm([]uint32{1, 2})
	a.delivers(1, "x", 0, 2)
	a.take(1, "x", stream.Mark{}, false)
	a.fenced(1, "x", 2, 3)
	a.Sink.Confirm([]uint32{1})
	a.delivers(1, "x", 2, 3)
	a.fenced(1, "z", 0, 1)
	check(t, r, 3, "x-", 3)
}

// progress checks that the ledger keeps start positions, delivered ranges, and watermarks set by
// Compact. It also checks that Take with MustExist does not create a missing partition.
func progress(t *testing.T, r Receiver) {
	a, b := open(t, r), open(t, r)
	lost, err := a.Sink.Take(t.Context(), []stream.Taking{
		{Assignment: 1, Part: r.part("lost"), MustExist: true},
		{Assignment: 2, Part: r.part("x"), Start: stream.Mark{Watermark: at(10),
			Above: []stream.Range{{From: at(12), To: at(14)}}}},
	})
	if err != nil || lost[0].Found || lost[1].Found || lost[1].Mark.Watermark != at(10) {
		t.Fatalf("Take: %+v, %v", lost, err)
	}
	a.Sink.Confirm([]uint32{1, 2})
	a.fenced(1, "lost", 0, 1)
	a.delivers(2, "x", 16, 18)
	a.delivers(2, "x", 12, 14) // delivered before the ledger began
	a.delivers(2, "x", 8, 10)
	second := b.take(1, "x", stream.Mark{Watermark: at(99)}, true)
	want := []stream.Range{{From: at(12), To: at(14)}, {From: at(16), To: at(18)}}
	if !second.Found || second.Mark.Watermark != at(10) || !slices.Equal(second.Mark.Above, want) {
		t.Errorf("the next owner gets %+v", second)
	}
	b.delivers(1, "x", 10, 12)
	if err := b.Sink.Compact(t.Context(), []stream.Mark{
		{Part: r.part("x"), Assignment: 1, Watermark: at(14)}}); err != nil {
		t.Error(err)
	}
	b.delivers(1, "x", 10, 12)
	third := a.take(3, "x", stream.Mark{}, true)
	if third.Mark.Watermark != at(14) || !slices.Equal(third.Mark.Above, want[1:]) {
		t.Errorf("the owner after that gets %+v", third)
	}
	if l := a.take(4, "lost", stream.Mark{}, true); l.Found {
		t.Error("a lost partition was found later")
	}
	check(t, r, 4, "x-", 4)
}

// oneOwner begins with a process that has loaded the whole ledger. When another process takes a
// partition, Take must fence the first process and return its progress. After that, no process can
// load the whole ledger. A process that replays dead letters (SinkOptions.OwnLetters) still loads
// the progress of its dead letters.
func oneOwner(t *testing.T, r Receiver) {
	a, b, c := open(t, r), open(t, r), open(t, r)
	if _, err := a.Sink.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.delivers(0, "x", 0, 4)
	a.delivers(0, "letter.a", 0, 1)
	if taken := b.take(1, "x", stream.Mark{}, true); !taken.Found || taken.Mark.Watermark != at(4) {
		t.Errorf("Take of a partition of a ledger of one owner: %+v", taken)
	}
	if err := a.Deliver(a.batch(0, "x", 4, 6)); err == nil {
		t.Error("the process that had loaded the ledger still writes")
	}
	_ = a.Host.Stop() // its goroutines end with the same error
	if _, err := c.Sink.Load(t.Context()); err == nil {
		t.Error("a ledger with several owners was loaded by one")
	}
	letters := openWith(t, r, stream.SinkOptions{OwnLetters: true})
	marks, err := letters.Sink.Load(t.Context())
	if err != nil || len(marks) != 1 || marks[0].Part.ID != "letter.a" ||
		marks[0].Watermark != at(1) {
		t.Errorf("a replay of dead letters has the progress %v, %v", marks, err)
	}
	letters.delivers(0, "letter.b", 0, 1)
	b.delivers(1, "x", 4, 5)
	check(t, r, 7, "x-", 5)
}

// lateTransaction checks that an open transaction of the earlier owner cannot commit after Take.
func lateTransaction(t *testing.T, r Receiver) {
	if r.Block == nil {
		t.Skip("skipped: the receiver has no transaction that can hang")
	}
	a, b := open(t, r), open(t, r)
	a.take(1, "x", stream.Mark{}, true)
	a.delivers(1, "x", 0, 1)
	release := r.Block(t)
	late := make(chan error, 1)
	go func() { late <- a.Deliver(a.batch(1, "x", 1, 3)) }()
	// Without this pause, the transaction may not have begun.
	_ = retry.Sleep(t.Context(), 200*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), r.Evicts)
	defer cancel()
	var taken []stream.Taken
	for err := errors.New("first"); err != nil; {
		taken, err = b.Sink.Take(ctx, []stream.Taking{{Assignment: 1, Part: r.part("x")}})
		if ctx.Err() != nil {
			release()
			t.Fatalf("the transaction was not ended: %v", err)
		}
	}
	release()
	if err := <-late; err == nil {
		t.Error("a transaction of the earlier owner has committed after Take")
	}
	b.Sink.Confirm([]uint32{1})
	if taken[0].Mark.Watermark != at(1) {
		t.Errorf("Take returned %+v", taken[0])
	}
	b.delivers(1, "x", 1, 3)
	a.fenced(1, "x", 3, 4)
	check(t, r, 3, "x-", 3)
}

// manyPartitions checks Take with more partitions than fit into one transaction.
func manyPartitions(t *testing.T, r Receiver) {
	a := open(t, r)
	var parts []stream.Taking
	var numbers []uint32
	for n := range uint32(250) {
		parts = append(parts, stream.Taking{Assignment: n + 1, Part: r.part(fmt.Sprint("p", n))})
		numbers = append(numbers, n+1)
	}
	taken, err := a.Sink.Take(t.Context(), parts)
	if err != nil || len(taken) != len(parts) {
		t.Fatalf("%d partitions, %v", len(taken), err)
	}
	a.Sink.Confirm(numbers)
	var marks []stream.Mark
	for _, n := range []int{0, 99, 100, 249} {
		a.delivers(uint32(n+1), fmt.Sprint("p", n), 0, 1)
	}
	for n := range parts {
		if taken[n].Mark.Part != parts[n].Part {
			t.Fatalf("partition %d is %+v", n, taken[n])
		}
		marks = append(marks, stream.Mark{Part: parts[n].Part, Assignment: uint32(n + 1)})
	}
	if err := a.Sink.Compact(t.Context(), marks); err != nil {
		t.Error(err)
	}
	check(t, r, 4, "p99-", 1)
}
