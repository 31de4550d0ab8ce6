package kafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// logRecord makes a record with its offset as the value. Every 7th offset is a control record.
func logRecord(offset int64) *kgo.Record {
	r := &kgo.Record{Offset: offset, Value: fmt.Append(nil, offset),
		LeaderEpoch: int32(offset / 50)}
	if isMarker(offset) {
		r.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
	}
	return r
}

func isMarker(offset int64) bool { return offset%7 == 3 }

// TestFill fills batches from random logs (gaps, control records, settled ranges) with random polls
// and batch limits. It checks that each record outside the settled ranges comes once and in order,
// and that the spans cover the log without the settled ranges.
func TestFill(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 28))
		start := rnd.Int64N(5)
		p := &partition{phase: reading, number: 1, next: start,
			part: &stream.Partition{ID: "c/t/0"}}
		settled := randomRanges(rnd, start)
		p.above = slices.Clone(settled)
		var log []*kgo.Record
		var want []string
		for offset := start; offset < 200; offset++ {
			if rnd.IntN(5) == 0 && offset < 199 {
				continue // compacted
			}
			log = append(log, logRecord(offset))
			if !isMarker(offset) && !within(settled, offset) {
				want = append(want, fmt.Sprint(offset))
			}
		}
		var got []string
		at := start
		for len(log) > 0 || len(p.fetched) > 0 {
			n := min(len(log), rnd.IntN(30))
			p.add(log[:n])
			log = log[n:]
			b := stream.NewBatch(stream.BatchLimits{Records: 1 + rnd.IntN(20), Bytes: 1 +
				rnd.IntN(60)})
			for range 1 + rnd.IntN(2) { // a batch may be continued
				p.fill(b)
			}
			if len(b.Spans) > 1 {
				t.Fatalf("seed %d: a batch has %d spans", seed, len(b.Spans))
			}
			for _, s := range b.Spans {
				for _, r := range settled {
					if r.From.Num == at {
						at = r.To.Num
					}
				}
				if s.From.Num != at || s.To.Num <= s.From.Num || s.Bytes != len(b.Data) {
					t.Fatalf("seed %d: span %v of %d bytes follows %d; settled %v", seed, s.Range,
						s.Bytes, at, settled)
				}
				at = s.To.Num
			}
			for i := range b.Records {
				got = append(got, string(b.Text(i)))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v; settled %v", seed, got, want, settled)
		}
		if p.bytes != 0 {
			t.Fatalf("seed %d: %d bytes are counted and no record is left", seed, p.bytes)
		}
	}
}

func within(ranges []stream.Range, offset int64) bool {
	return slices.ContainsFunc(ranges, func(r stream.Range) bool {
		return offset >= r.From.Num &&
			offset < r.To.Num
	})
}

// randomRanges returns ranges with gaps between them.
func randomRanges(rnd *rand.Rand, at int64) (out []stream.Range) {
	for range rnd.IntN(6) {
		from := at + 1 + rnd.Int64N(30)
		at = from + 1 + rnd.Int64N(30)
		out = append(out, stream.Range{From: stream.Position{Num: from},
			To: stream.Position{Num: at}})
	}
	return out
}

// TestEpochs checks that a commit has the leader epoch of the record before its offset.
func TestEpochs(t *testing.T) {
	p := &partition{phase: reading, part: new(stream.Partition)}
	for offset := range int64(200) {
		p.add([]*kgo.Record{logRecord(offset)})
	}
	b := stream.NewBatch(stream.BatchLimits{})
	p.fill(b)
	for _, c := range []struct {
		position int64
		want     int32
	}{{0, -1}, {1, 0}, {50, 0}, {51, 1}, {52, 1}, {150, 2}, {151, 3}, {200, 3}} {
		if got := p.epochAt(c.position); got != c.want {
			t.Errorf("epoch before %d is %d, want %d", c.position, got, c.want)
		}
	}
}

func TestOfferOf(t *testing.T) {
	part := stream.Partition{ID: "c/t/0", Name: "t/0"}
	mark := stream.Mark{Part: part, Watermark: stream.Position{Num: 20}}
	mark.Above = []stream.Range{{From: stream.Position{Num: 30}, To: stream.Position{Num: 40}}}
	text, _ := commitmeta.Encode(mark, commitmeta.DefaultLimit)
	for _, c := range []struct {
		name      string
		c         committed
		b         bounds
		start     string
		truncated string
		at        int64
		origin    stream.PositionOrigin
		above     int
		lost      int64
		fails     bool
	}{
		{name: "none, earliest", c: committed{offset: -1}, b: bounds{5, 50}, start: startEarliest,
			at: 5},
		{name: "none, latest", c: committed{offset: -1}, b: bounds{5, 50}, start: startLatest,
			at: 50},
		{name: "ours", c: committed{20, 1, text}, b: bounds{5, 50}, at: 20,
			origin: stream.FromCommit, above: 1},
		{name: "another offset", c: committed{21, 1, text}, b: bounds{5, 50}, fails: true},
		{name: "of another topic, at the start", c: committed{5, -1, text}, b: bounds{5, 50}, at: 5,
			origin: stream.FromOthers},
		{name: "of another topic, before the start", c: committed{4, -1, text}, b: bounds{5, 50},
			fails: true},
		{name: "of a tool", c: committed{21, 1, ""}, b: bounds{5, 50}, at: 21,
			origin: stream.FromOthers},
		{name: "of another client", c: committed{21, 1, "consumer-7"}, b: bounds{5, 50}, at: 21,
			origin: stream.FromOthers},
		{name: "deleted", c: committed{20, 1, text}, b: bounds{25, 50}, fails: true},
		{
			name: "deleted, earliest", c: committed{20, 1, text}, b: bounds{25,
				50}, truncated: truncatedEarliest,
			at: 25, origin: stream.FromCommit, above: 1, lost: 5,
		},
		{
			name: "deleted up to a range", c: committed{20, 1, text}, b: bounds{35,
				50}, truncated: truncatedEarliest,
			at: 40, origin: stream.FromCommit, lost: 15,
		},
		{name: "beyond", c: committed{20, 1, text}, b: bounds{5, 10}, fails: true},
		{name: "beyond, earliest", c: committed{20, 1, text}, b: bounds{5, 10},
			truncated: truncatedEarliest, at: 5},
		{name: "at the end", c: committed{20, 1, text}, b: bounds{5, 20}, at: 20,
			origin: stream.FromCommit, above: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := DefaultSourceOptions()
			o.Start, o.Truncated = c.start, c.truncated
			offer, lost, err := offerOf(part, c.c, c.b, o)
			if (err != nil) != c.fails {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				return
			}
			if offer.Watermark.Num != c.at || offer.Origin != c.origin ||
				len(offer.Above) != c.above || lost != c.lost {
				t.Errorf("at %d, origin %d, above %v, lost %d", offer.Watermark.Num, offer.Origin,
					offer.Above, lost)
			}
		})
	}
}

func TestPartitionID(t *testing.T) {
	id := [16]byte{1, 2, 3}
	if a, b := partitionID("c", "t", id, 0), partitionID("c", "t", [16]byte{1, 2, 4}, 0); a == b {
		t.Errorf("two topics of one name have the id %s", a)
	}
	for _, got := range []string{partitionID("MkU3OEVBNTcwNTJENDM2Qg", "t", id, 7),
		partitionID("a b;c", "t", [16]byte{}, 7)} {
		if len(got) > 200 || !isID(got) {
			t.Errorf("%q is no id", got)
		}
	}
}

func isID(text string) bool {
	return !slices.ContainsFunc([]byte(text), func(c byte) bool {
		return c <= ' ' || c > '~' || c == ',' || c == ';' || c == '@' || c == '"'
	})
}

// TestMeta checks that records get the fields of `meta` in order, and that a record without a value
// has a null message.
func TestMeta(t *testing.T) {
	o := &MetaOptions{Topic: "topic", Partition: "partition", Offset: "offset", Timestamp: "time",
		Key: "key", Headers: "headers"}
	at := time.UnixMilli(1_700_000_000_123)
	records := []*kgo.Record{
		{Topic: "t", Partition: 2, Offset: 7, Timestamp: at, Key: []byte("k"), Value: []byte("v")},
		{
			Topic: "t", Partition: 2, Offset: 9, Timestamp: at,
			Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte(`"`)}},
		},
	}
	p := &partition{phase: reading, next: 7, part: new(stream.Partition)}
	p.add(records)
	b := stream.NewBatch(stream.BatchLimits{})
	used, _ := p.fill(b)
	tombstones := int64(0)
	addMeta(messages.NewMetaAdder(o.fields()), b, used, func(_ string, n int64) { tombstones += n })
	var got []string
	for i := range b.Records {
		line := ""
		for _, f := range b.FieldsOf(i) {
			line += fmt.Sprintf("%s=%s/%d ", b.Names[f.Name], b.Value(f), f.Kind)
		}
		got = append(got, line)
	}
	want := []string{
		"message=v/0 topic=t/0 partition=2/1 offset=7/1 time=2023-11-14T22:13:20.123Z/0 key=k/0 headers={}/4 ",
		`message=/3 topic=t/0 partition=2/1 offset=9/1 time=2023-11-14T22:13:20.123Z/0 key=/3 headers={"a":["1","\""],"b":null}/4 `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if tombstones != 1 {
		t.Errorf("%d tombstones, want 1", tombstones)
	}
}

// TestRawPathAllocatesNothing checks that moving records from a fetch into a batch needs no
// allocation per record.
func TestRawPathAllocatesNothing(t *testing.T) {
	const n = 1000
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Offset: int64(i), Value: []byte("a record of some length")}
	}
	pool := new(stream.Pool)
	limits := stream.BatchLimits{Records: n, Bytes: 1 << 20}
	p := &partition{phase: reading, number: 1, part: &stream.Partition{ID: "c/t/0"}}
	allocations := testing.AllocsPerRun(20, func() {
		p.next = 0
		p.add(slices.Clone(records))
		b := pool.Get(limits)
		if used, _ := p.fill(b); len(used) != n {
			t.Fatalf("%d records", len(used))
		}
		b.Release()
	})
	if allocations > n/20 {
		t.Errorf("%v allocations for %d records, want a few for the batch", allocations, n)
	}
}

// TestReadyPartition checks that records wait for more of their partition until the linger ends, a
// batch is full, or the memory is full.
func TestReadyPartition(t *testing.T) {
	const linger = 200 * time.Millisecond
	for _, c := range []struct {
		name   string
		now    time.Duration
		memory stream.Size
		n      int
		want   int
		wait   time.Duration
	}{
		{"just fetched", 0, 1 << 20, 5, 0, linger},
		{"after the linger", linger, 1 << 20, 5, 5, 0},
		{"full batch", 0, 1 << 20, 10, 10, 0},
		{"full memory", 0, 1000, 5, 5, 0},
	} {
		s := &GroupSource{o: *DefaultSourceOptions(), host: streamtest.NewHost(t)}
		s.o.Memory = c.memory
		r := newReader(s, stream.OpenOptions{Linger: linger}, "g")
		p := &partition{phase: reading, number: 1, part: &stream.Partition{ID: "c/t/0"},
			ready: linger}
		for i := range c.n {
			r.fetched += p.add([]*kgo.Record{{Offset: int64(i), Value: []byte("text")}})
		}
		r.parts[topicPartition{"t", 0}] = p
		b := stream.NewBatch(stream.BatchLimits{Records: 10, Bytes: 1 << 20})
		used, wait, err := r.fill(b, c.now)
		if len(used) != c.want || wait != c.wait || err != nil {
			t.Errorf("%s: %d records, wait %v, %v; want %d and %v", c.name, len(used), wait, err,
				c.want, c.wait)
		}
	}
}
