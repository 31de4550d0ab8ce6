package requests

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// pruned checks that Prune deletes only some of the requests that are passed to it. Prune must
// delete a request if the calling process was the last one to store progress of this request.
// Otherwise it must delete the request only if the request is older than the duration keep.
func pruned(t *testing.T, r Receiver) {
	a, _ := open(t, r, "intake-a", one)
	b, _ := open(t, r, "intake-b", one)
	now := time.Now()
	store := func(p *process, arrival time.Time, request string) {
		t.Helper()
		if err := p.deliverAll(batchOf(arrival, span{request, 0, 2})); err != nil {
			t.Error(err)
		}
		if err := p.deliverAll(batchOf(arrival, span{request, 3, 4})); err != nil { // a row of spans
			t.Error(err)
		}
	}
	store(a, now.Add(-keep/2), "young")
	store(a, now.Add(-2*keep), "old")
	store(b, now, "own")
	store(a, now, "taken")
	part := *partOf("taken", now)
	if err := b.Sink.Compact(t.Context(), []stream.Mark{{Part: part, Watermark: at(2)}}); err != nil {
		t.Error(err)
	}
	prune := func(p *process, requests ...string) {
		t.Helper()
		var ids []string
		for _, request := range requests {
			ids = append(ids, stream.RequestPrefix+request)
		}
		if err := p.Sink.Prune(t.Context(), ids); err != nil {
			t.Error(err)
		}
	}
	left := func(want ...string) {
		t.Helper()
		for _, table := range []string{"penstock_marks", "penstock_spans"} {
			got := r.Column(t, "SELECT part FROM "+table+" ORDER BY part")
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], stream.RequestPrefix)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s has %v, want %v", table, got, want)
			}
		}
	}
	left("old", "own", "taken", "young")
	prune(b, "young", "old", "own")
	left("taken", "young")
	prune(a, "taken") // b has written its mark last
	left("taken", "young")
	prune(a, "young", "missing")
	left("taken")
	b.mustDeliver(span{"taken", 0, 5})
	has(t, r, "one", span{"young", 0, 2}, span{"young", 3, 4}, span{"old", 0, 2}, span{"old", 3, 4},
		span{"own", 0, 2}, span{"own", 3, 4}, span{"taken", 0, 5})
}

// expired checks that Load deletes the requests that have expired long ago, whichever process has
// stored them, and no other rows.
func expired(t *testing.T, r Receiver) {
	a, _ := open(t, r, "intake-a", one)
	now := time.Now()
	other := batchOf(now, span{"a.log", 0, 2})
	other.Spans[0].Part = &stream.Partition{ID: "intake-a", Name: "a.log"}
	if err := a.deliverAll(other); err != nil {
		t.Error(err)
	}
	for request, arrival := range map[string]time.Time{
		"gone1": now.Add(-keep - 2*time.Hour), "gone2": now.Add(-keep - 2*time.Hour),
		"past": now.Add(-keep - time.Minute), "young": now,
	} {
		for _, records := range []span{{request, 0, 2}, {request, 3, 4}} {
			if err := a.deliverAll(batchOf(arrival, records)); err != nil {
				t.Error(err)
			}
		}
	}
	b, marks := open(t, r, "intake-b", one)
	var got []string
	for _, m := range marks {
		got = append(got, fmt.Sprintln(m.Part.ID, m.Watermark.Num, len(m.Above)))
	}
	want := "intake-a 24 0\nrequest-past 24 1\nrequest-young 24 1\n"
	if strings.Join(got, "") != want {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
	gone := "SELECT part FROM penstock_spans WHERE part LIKE 'request-gone%'"
	if got := r.Column(t, gone); len(got) > 0 {
		t.Errorf("the ledger has spans of %v", got)
	}
	b.mustDeliver(span{"past", 0, 5}, span{"young", 0, 4})
	has(t, r, "one", span{"a.log", 0, 2}, span{"gone1", 0, 2}, span{"gone1", 3, 4},
		span{"gone2", 0, 2}, span{"gone2", 3, 4}, span{"past", 0, 5}, span{"young", 0, 4})
}

// converted checks the change of a ledger from one process to several. The first process with
// SinkOptions.Keep converts the ledger, and keeps its progress. Several processes can then share
// the ledger, and each recognizes the requests that another one has stored. Deliveries of the
// former single owner must fail, and a sink without Keep must refuse the ledger.
func converted(t *testing.T, r Receiver) {
	before := prepare(t, r, one, stream.SinkOptions{})
	if _, err := before.Sink.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrival := time.Now().Add(-keep / 2)
	if err := before.deliverAll(batchOf(arrival, span{"r1", 0, 3}, span{"r2", 2, 4})); err != nil {
		t.Fatal(err)
	}
	if err := before.Sink.Compact(t.Context(), []stream.Mark{
		{Part: *partOf("r1", arrival), Watermark: at(3)}}); err != nil {
		t.Fatal(err)
	}
	a, marks := open(t, r, "intake-a", one)
	if len(marks) != 2 || marks[0].Watermark != at(3) || len(marks[1].Above) != 1 {
		t.Errorf("the ledger has %+v after the conversion", marks)
	}
	b, _ := open(t, r, "intake-b", one)
	a.mustDeliver(span{"r1", 0, 3})
	b.mustDeliver(span{"r1", 0, 3}, span{"r2", 0, 5})
	has(t, r, "one", span{"r1", 0, 3}, span{"r2", 0, 5})
	err := before.Deliver(batchOf(arrival, span{"r3", 0, 1}))
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the owner of the old format gets %v", err)
	}
	_ = before.Host.Stop() // its goroutines end with the same error
	if err := b.Sink.Prune(t.Context(), []string{stream.RequestPrefix + "r1"}); err != nil {
		t.Error(err)
	}
	a.mustDeliver(span{"r1", 0, 3}) // not expired: still known
	has(t, r, "one", span{"r1", 0, 3}, span{"r2", 0, 5})
	older := prepare(t, r, one, stream.SinkOptions{Once: true})
	if _, err := older.Sink.Load(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "has format 3") {
		t.Errorf("a source without requests gets %v", err)
	}
}

// refused checks a process with SinkOptions.Keep, which stores requests. It must refuse a ledger in
// which partitions are assigned to processes, and leave the ledger unchanged.
func refused(t *testing.T, r Receiver) {
	kafka := prepare(t, r, one, stream.SinkOptions{})
	assigned := kafka.Sink.(stream.PartitionLedger)
	taking := []stream.Taking{{Assignment: 1, Part: stream.Partition{ID: "x"}}}
	if _, err := assigned.Take(t.Context(), taking); err != nil {
		t.Fatal(err)
	}
	assigned.Confirm([]uint32{1})
	p := prepare(t, r, one, stream.SinkOptions{Own: "intake-a", Keep: keep, Once: true})
	if _, err := p.Sink.Load(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "has format 2") {
		t.Errorf("a source with requests gets %v", err)
	}
	b := batchOf(time.Now(), span{"x", 0, 2})
	b.Spans[0].Part, b.Spans[0].Assignment = &stream.Partition{ID: "x"}, 1
	if err := kafka.Deliver(b); err != nil {
		t.Error(err)
	}
}

// thousands delivers a batch with thousands of requests, of which another process has stored some.
// Each record must be in the table once, and each request in the ledger.
func thousands(t *testing.T, r Receiver) {
	const n = 5000
	a, _ := open(t, r, "intake-a", one)
	b, _ := open(t, r, "intake-b", one)
	var all, third []span
	for i := range n {
		s := span{fmt.Sprintf("t%d", i), 0, 1}
		if all = append(all, s); i%3 == 0 {
			third = append(third, s)
		}
	}
	a.mustDeliver(third...)
	b.mustDeliver(all...)
	a.mustDeliver(all...)
	has(t, r, "one", all...)
	_, marks := open(t, r, "intake-c", one)
	if len(marks) != n {
		t.Errorf("the ledger has %d requests, want %d", len(marks), n)
	}
}

// randomSets delivers batches with parts of random requests in two processes at the same time.
// Each process also compacts the ledger. No record may be stored twice. No transaction may end
// because of a deadlock, unless [Receiver].Deadlocks is set.
func randomSets(t *testing.T, r Receiver) {
	const seed, requests, batches, records = 7, 60, 60, 3
	var both sync.WaitGroup
	for i, own := range []string{"intake-a", "intake-b"} {
		p, _ := open(t, r, own, one)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		both.Go(func() {
			for range batches {
				sets := random.Perm(requests)[:1+random.IntN(20)]
				p.set(r, random, sets, records)
			}
		})
	}
	both.Wait()
	last, _ := open(t, r, "intake-c", one)
	var all []span
	for i := range requests {
		all = append(all, span{fmt.Sprintf("s%d", i), 0, records})
	}
	last.mustDeliver(all...)
	has(t, r, "one", all...)
}

// set delivers one batch with records of all given requests. Of each request, it chooses a random
// record, and takes this record and all later ones. Then set calls Compact for the requests with
// all their records in the batch, so that the ledger stores them as complete.
func (p *process) set(r Receiver, random *rand.Rand, requests []int, records int) {
	var spans []span
	var marks []stream.Mark
	now := time.Now()
	for _, n := range requests {
		s := span{fmt.Sprintf("s%d", n), random.IntN(records), records}
		if spans = append(spans, s); s.from == 0 {
			marks = append(marks, stream.Mark{Part: *partOf(s.request, now),
				Watermark: at(records)})
		}
	}
	p.retry(r, func() error { return p.deliverAll(batchOf(now, spans...)) })
	p.retry(r, func() error { return p.Sink.Compact(p.T.Context(), marks) })
}

// retry calls f, and calls it again after an error due to a deadlock if r.Deadlocks is set. Any
// other error fails the test.
func (p *process) retry(r Receiver, f func() error) {
	err := f()
	for err != nil && r.Deadlocks && strings.Contains(strings.ToLower(err.Error()), "deadlock") {
		err = f()
	}
	if err != nil {
		p.T.Error(err)
	}
}
