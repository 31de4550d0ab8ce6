package connectortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// SinkCase creates a sink and gives access to the records of its receiver.
type SinkCase struct {
	// Start creates an empty receiver. The suite calls it once for each check.
	Start func(t *testing.T) Receiver
	// ExactlyOnce means that records are not repeated after a kill if the sink is opened with the
	// saved ResumeToken.
	ExactlyOnce bool
}

// Receiver is the destination to which sinks deliver.
type Receiver struct {
	// New creates another sink for the receiver, as a new process would.
	New func(t *testing.T, h *streamtest.Host) stream.Sink
	// Received returns the text of each record at the receiver, in the receiver's order. Received
	// is nil if the receiver stores nothing.
	Received func(t *testing.T) []string
}

// Sink checks that a sink fulfils the contract of [stream.Sink]:
//
//   - Open returns lanes with distinct names.
//   - The receiver gets each record once. The suite delivers over all lanes, with as many
//     concurrent calls as the limits allow (at most 16 per lane). It starts the calls in any
//     order. On ordered lanes, the receiver gets the records in the order of the attempts' indexes.
//     The memory of a batch is overwritten after the last Deliver.
//   - If a batch is cut into pieces, exactly the kept records of the pieces are delivered. A batch
//     without kept records causes no error.
//   - When the context of a Deliver ends, Deliver returns soon. The batch can then be delivered
//     again.
//   - If a process ends after any batch, with the checkpoint up to date or one batch behind,
//     the next process loses nothing and, with ExactlyOnce, repeats nothing.
//   - A ledger reports the delivered batches and deletes partitions on request.
//   - Close may be called twice.
func Sink(t *testing.T, c SinkCase) {
	t.Helper()
	for _, check := range []struct {
		name string
		run  func(*testing.T, SinkCase)
	}{
		{"delivers at once", sinkDelivers},
		{"arrivals in any order", sinkReversed},
		{"pieces and dropped records", sinkPieces},
		{"contexts that end", sinkCancelled},
		{"killed between calls", sinkKilled},
		{"keeps a ledger", sinkKeepsLedger},
		{"drops what is gone", sinkPrunes},
		{"closes twice", sinkCloses},
	} {
		t.Run(check.name, func(t *testing.T) { check.run(t, c) })
	}
}

// perBatch is the number of records in each batch of the suite.
const perBatch = 5

// textOf returns the text of record i of batch n. Sizes differ, and a few texts are large.
func textOf(n, i int) string {
	size := (n*31 + i*17) % 90
	if n%11 == 3 && i == 0 {
		size = 100_000
	}
	return fmt.Sprintf("batch %03d record %d %s", n, i, strings.Repeat("abcdefghij", size/10))
}

// life is one simulated process with a sink, from Open to its end.
type life struct {
	t     *testing.T
	host  *streamtest.Host
	sink  stream.Sink
	lanes []stream.Lane
	pool  *stream.Pool
	run   uint32
	place string        // the resume token in a checkpoint
	marks []stream.Mark // the marks of a TransactionalSink at its start
	ids   uint64
}

// live opens a sink with a resume token.
func live(t *testing.T, r Receiver, place string) *life {
	t.Helper()
	l := &life{t: t, host: NewHost(t), pool: &stream.Pool{Poison: true}, place: place}
	l.sink = r.New(t, l.host)
	if _, encodes := l.sink.(interface {
		Encode(dst []byte, b *stream.Batch) ([]byte, error)
	}); encodes {
		if _, ok := l.sink.(stream.Encoder); !ok {
			t.Fatalf("%T has Encode, which nobody calls: it lacks Encodes of stream.Encoder",
				l.sink)
		}
	}
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := l.sink.Open(ctx, stream.SinkOptions{Pipeline: "suite", Route: "main", ResumeToken: place,
		Lanes: func(lanes []stream.Lane) {
			mu.Lock()
			defer mu.Unlock()
			l.lanes = slices.Clone(lanes)
		}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(l.lanes) == 0 {
		t.Fatal("Open returned and has given no lanes")
	}
	names := make(map[string]bool)
	for _, lane := range l.lanes {
		if lane.Name == "" || names[lane.Name] || lane.Worker == nil {
			t.Fatalf("lane %q has no name of its own or no worker", lane.Name)
		}
		names[lane.Name] = true
	}
	if p, ok := l.sink.(stream.TransactionalSink); ok {
		if l.marks, err = p.Load(ctx); err != nil {
			t.Fatalf("Load: %v", err)
		}
	}
	if p, ok := l.sink.(stream.AppendSink); ok {
		l.place = p.StartToken()
		if place != "" && l.place != place {
			t.Errorf("StartToken is %q after Open at %q", l.place, place)
		}
	}
	return l
}

func (l *life) end() {
	l.t.Helper()
	if err := l.host.Stop(); err != nil {
		l.t.Errorf("goroutine of the sink: %v", err)
	}
	if err := l.sink.Close(); err != nil {
		l.t.Errorf("Close: %v", err)
	}
}

// batch returns batch n, encoded as the engine does it.
func (l *life) batch(n int) *stream.Batch {
	l.t.Helper()
	b := l.raw(n)
	l.encode(b)
	return b
}

func (l *life) raw(n int) *stream.Batch {
	b := l.pool.Get(stream.BatchLimits{})
	for i := range perBatch {
		b.Data = append(append(b.Data, textOf(n, i)...), '\n')
	}
	b.Origins = perBatch
	from := int64(n) << 32
	b.Spans = append(b.Spans, stream.Span{
		Part: &stream.Partition{ID: "suite", Name: "suite"},
		Range: stream.Range{From: stream.Position{Num: from},
			To: stream.Position{Num: from + int64(len(b.Data))}},
		Bytes: len(b.Data),
	})
	return b
}

func (l *life) encode(b *stream.Batch) {
	l.t.Helper()
	e, ok := l.sink.(stream.Encoder)
	if ok && e.Encodes() != stream.EncodeNone && b.Kept() > 0 {
		if err := b.Encode(e); err != nil {
			l.t.Fatalf("Encode: %v", err)
		}
	}
}

// attempt is one call of Deliver.
type attempt struct {
	lane   int
	batch  *stream.Batch
	report stream.Report
	err    error
}

// ordered reports whether the sink has a single lane, and this lane is ordered.
func (l *life) ordered() bool { return len(l.lanes) == 1 && l.lanes[0].Limits.Ordered }

// atOnce returns the number of concurrent calls of Deliver on a lane.
func (l *life) atOnce() int {
	const most = 16
	if n := l.lanes[0].Limits.InFlight; n > 0 {
		return min(n, most)
	}
	return most
}

// deliver calls Deliver for each batch, with at most atOnce concurrent calls per lane. starts has
// the indexes of the batches in the order in which their calls start. Nil means the order of
// batches. The attempts on each lane have consecutive indexes ([stream.Attempt].Index), which
// determine the order on an ordered lane. Afterwards deliver releases the batches.
func (l *life) deliver(ctx context.Context, batches []*stream.Batch, starts []int) []attempt {
	l.t.Helper()
	all := make([]attempt, len(batches))
	var wg sync.WaitGroup
	room := make([]chan struct{}, len(l.lanes))
	for i := range room {
		room[i] = make(chan struct{}, l.atOnce())
	}
	for k := range batches {
		n := k
		if starts != nil {
			n = starts[k]
		}
		a := &all[n]
		a.lane, a.batch = n%len(l.lanes), batches[n]
		l.ids++
		at := stream.Attempt{Value: a.batch, ID: l.ids, Number: 1, Run: l.run,
			Index: uint32(n / len(l.lanes))}
		room[a.lane] <- struct{}{}
		wg.Go(func() {
			defer func() { <-room[a.lane] }()
			a.report, a.err = l.lanes[a.lane].Worker.Deliver(ctx, at)
			at.Value.Release()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		l.t.Fatalf("Deliver had not returned after %v", patience)
	}
	l.run++
	for n := range all {
		if all[n].err == nil && all[n].report.ResumeToken != "" {
			l.place = all[n].report.ResumeToken
		}
	}
	return all
}

// must delivers batches. It fails the test if the delivery of a batch fails.
func (l *life) must(batches ...*stream.Batch) {
	l.t.Helper()
	for n, a := range l.deliver(l.t.Context(), batches, nil) {
		if a.err != nil {
			l.t.Fatalf("Deliver of batch %d: %v", n, a.err)
		}
	}
}

// check compares the receiver's records with want. If ordered is set, the order must match. If
// repeats is set, the receiver may have records more than once, and their first copies count.
func check(t *testing.T, r Receiver, ordered, repeats bool, want []string) {
	t.Helper()
	if r.Received == nil {
		return
	}
	got := r.Received(t)
	if repeats {
		seen := make(map[string]bool)
		got = slices.DeleteFunc(slices.Clone(got), func(text string) bool {
			again := seen[text]
			seen[text] = true
			return again
		})
	}
	if !ordered {
		got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("the receiver holds %d records, want %d; missing: %.60q", len(got), len(want),
				want[i])
		case i >= len(want):
			t.Fatalf("the receiver holds %d records, want %d; too many: %.60q", len(got),
				len(want), got[i])
		case got[i] != want[i]:
			t.Fatalf("record %d at the receiver is %.60q, want %.60q", i, got[i], want[i])
		}
	}
}

// texts returns the texts of all records of the batches with numbers in [from, to).
func texts(from, to int) []string {
	var all []string
	for n := from; n < to; n++ {
		for i := range perBatch {
			all = append(all, textOf(n, i))
		}
	}
	return all
}

func sinkDelivers(t *testing.T, c SinkCase) {
	r := c.Start(t)
	l := live(t, r, "")
	const rounds, each = 4, 12
	for round := range rounds {
		var batches []*stream.Batch
		for n := range each {
			batches = append(batches, l.batch(round*each+n))
		}
		l.must(batches...)
	}
	l.end()
	check(t, r, l.ordered(), false, texts(0, rounds*each))
}

// sinkReversed starts as many concurrent calls of Deliver as allowed, first in reverse order of
// the batches, then in random orders. On ordered lanes, the receiver must still get the records
// in the order of the batches.
func sinkReversed(t *testing.T, c SinkCase) {
	const rounds, seed = 8, 2
	r := c.Start(t)
	l := live(t, r, "")
	random := randomFrom(t, seed)
	each := l.atOnce() * len(l.lanes)
	for round := range rounds {
		var batches []*stream.Batch
		starts := random.Perm(each)
		for n := range each {
			batches = append(batches, l.batch(round*each+n))
			if round == 0 {
				starts[n] = each - 1 - n
			}
		}
		for n, a := range l.deliver(t.Context(), batches, starts) {
			if a.err != nil {
				t.Fatalf("Deliver of batch %d: %v", n, a.err)
			}
		}
	}
	l.end()
	check(t, r, l.ordered(), false, texts(0, rounds*each))
}

// sinkPieces delivers batches, most of them cut into pieces. Some records are dropped or
// dead-lettered, and the last batch has no kept records. The receiver must get exactly the kept
// records.
func sinkPieces(t *testing.T, c SinkCase) {
	const seed = 3
	r := c.Start(t)
	l := live(t, r, "")
	random := randomFrom(t, seed)
	var want []string
	for n := range 30 {
		b := l.raw(n)
		b.Split()
		for i := range b.Records {
			switch n%3*10 + random.IntN(3) {
			case 10:
				b.Drop(i)
			case 20:
				b.DeadLetter(i, errors.New("the suite dead-lettered it"))
			default:
				want = append(want, textOf(n, i))
			}
		}
		l.encode(b)
		for _, p := range pieces(b, random) {
			l.must(p)
		}
	}
	empty := l.raw(99)
	empty.Split()
	for i := range empty.Records {
		empty.Drop(i)
	}
	l.must(empty)
	l.end()
	check(t, r, l.ordered(), false, want)
}

// pieces cuts b at random into consecutive pieces, or returns b itself. The pieces take over the
// reference to b's memory.
func pieces(b *stream.Batch, random *rand.Rand) []*stream.Batch {
	if random.IntN(3) == 0 {
		return []*stream.Batch{b}
	}
	var all []*stream.Batch
	for from := 0; from < len(b.Records); {
		to := from + 1 + random.IntN(len(b.Records)-from)
		all = append(all, b.Cut(from, to))
		from = to
	}
	b.Release()
	return all
}
