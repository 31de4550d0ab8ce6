package nats

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/stream"
)

func delivered(seq uint64, reply string) *message {
	return &message{
		content: content{seq: seq, data: []byte(strconv.FormatUint(seq, 10))},
		reply:   reply,
	}
}

// deliveriesModel counts how often each message is handed out and acknowledged.
type deliveriesModel struct {
	t             *testing.T
	d             *deliveries
	handed, acked map[uint64]int
	seen          map[uint64]bool
	ends          map[uint32]int64 // end of the last span, by run
	marks         []stream.Mark    // of unsettled batches
}

func (m *deliveriesModel) deliver(seq uint64) {
	m.seen[seq] = true
	one := delivered(seq, strconv.FormatUint(seq, 10))
	if m.d.take(one) != unplaced {
		return
	}
	number := uint32(len(m.ends) + 1)
	m.d.add(&stream.Partition{ID: strconv.Itoa(int(number))}, number, seq)
	m.ends[number] = int64(seq - 1)
	if m.d.take(one) != queued {
		m.t.Fatal("a new run does not take its first message")
	}
}

func (m *deliveriesModel) read(records int) {
	b := stream.NewBatch(stream.BatchLimits{Records: records})
	used, r := m.d.fill(b, nil)
	if len(used) == 0 {
		return
	}
	s := b.Spans[0]
	if len(b.Spans) != 1 || s.From.Num != m.ends[s.Assignment] || s.Bytes != len(b.Data) {
		m.t.Fatalf("spans %v, want one from %d", b.Spans, m.ends[s.Assignment])
	}
	m.ends[s.Assignment] = s.To.Num
	for _, one := range used {
		m.handed[one.seq]++
	}
	above := []stream.Range{s.Range}
	m.marks = append(m.marks, stream.Mark{Part: *r.part, Assignment: r.number, Above: above})
}

func (m *deliveriesModel) settle(i int) {
	for _, reply := range m.d.settle(&m.marks[i], true, nil) {
		seq, _ := strconv.ParseUint(reply, 10, 64)
		m.acked[seq]++
	}
	m.marks = slices.Delete(m.marks, i, i+1)
}

// check settles the remaining batches and compares the counts.
func (m *deliveriesModel) check() {
	for len(m.marks) > 0 {
		m.settle(0)
	}
	for seq := range m.seen {
		n, waits := m.handed[seq], m.d.open[seq] != nil
		if n > 1 || n == 0 && !waits || n != m.acked[seq] {
			m.t.Fatalf("message %d is in %d batches and acknowledged %d times", seq, n, m.acked[seq])
		}
	}
	bytes := int64(0)
	for _, r := range m.d.runs {
		for _, one := range r.queue {
			bytes += one.bytes
		}
	}
	if bytes != m.d.bytes {
		m.t.Fatalf("%d bytes are queued, want %d", m.d.bytes, bytes)
	}
	if n := len(m.d.release()); n != len(m.seen)-len(m.acked) {
		m.t.Fatalf("%d messages are given back, want %d", n, len(m.seen)-len(m.acked))
	}
}

// TestDeliveriesModel delivers messages in random order, some of them twice, and settles batches in
// random order. It checks that each message is in one batch and acknowledged once, and that spans
// leave no gaps.
func TestDeliveriesModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m := &deliveriesModel{
			t: t, d: newDeliveries(), handed: make(map[uint64]int), acked: make(map[uint64]int),
			seen: make(map[uint64]bool), ends: make(map[uint32]int64),
		}
		for range 300 {
			switch n := len(m.marks); rnd.IntN(4) {
			case 0, 1:
				m.deliver(1 + rnd.Uint64N(100))
			case 2:
				m.read(1 + rnd.IntN(5))
			case 3:
				if n > 0 {
					m.settle(rnd.IntN(n))
				}
			}
		}
		m.check()
	}
}

// TestDeliveriesMerge checks that a message redelivered during its processing is acknowledged on
// the reply subject of its latest delivery. A message that was already settled is acknowledged
// again.
func TestDeliveriesMerge(t *testing.T) {
	d := newDeliveries()
	d.add(&stream.Partition{ID: "p"}, 1, 5)
	d.take(delivered(5, "first"))
	d.take(delivered(6, "six"))
	d.fill(stream.NewBatch(stream.BatchLimits{}), nil)
	if got := d.take(delivered(5, "second")); got != merged {
		t.Fatalf("the reaction is %d, want merged", got)
	}
	mark := stream.Mark{
		Part:       stream.Partition{ID: "p"},
		Assignment: 1,
		Watermark:  stream.Position{Num: 5},
	}
	if got := d.settle(&mark, false, nil); !slices.Equal(got, []string{"second"}) {
		t.Errorf("acknowledged: %v", got)
	}
	if got := d.take(delivered(5, "third")); got != repeated {
		t.Errorf("the reaction is %d, want repeated", got)
	}
	mark.Assignment = 2
	mark.Watermark.Num = 6
	if got := d.settle(&mark, true, nil); len(got) > 0 {
		t.Errorf("another assignment acknowledges %v", got)
	}
	if got := d.due(time.Second, time.Second, nil); !slices.Equal(got, []string{"six"}) {
		t.Errorf("in work: %v", got)
	}
	if got := d.due(time.Second+1, time.Second, nil); len(got) > 0 {
		t.Errorf("in work again: %v", got)
	}
}

func TestDeletedUnread(t *testing.T) {
	state := func(consumer, stream uint64) jetstream.SequenceInfo {
		return jetstream.SequenceInfo{Consumer: consumer, Stream: stream}
	}
	for _, c := range []struct {
		name        string
		before, now jetstream.SequenceInfo
		first, want uint64
	}{
		{"all delivered", state(10, 10), state(100, 100), 90, 0},
		{"purge while paused", state(20, 20), state(20, 100), 101, 80},
		{"purge, then more", state(20, 20), state(25, 105), 101, 80},
		{"single deletions", state(20, 20), state(25, 105), 1, 0},
		{"delivered again", state(20, 20), state(110, 105), 101, 0},
		{"consumer made again", state(20, 20), state(0, 0), 101, 0},
	} {
		if got := deletedUnread(c.before, c.now, c.first); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestRecent(t *testing.T) {
	r := newRecent(3)
	for _, n := range []uint64{1, 2, 2, 3, 4} {
		r.add(n)
	}
	for n, want := range []bool{false, false, true, true, true} {
		if r.has(uint64(n)) != want {
			t.Errorf("has(%d) = %v", n, !want)
		}
	}
}

// TestCursor checks that spans end at settled ranges and begin after them.
func TestCursor(t *testing.T) {
	rng := func(from, to int64) stream.Range {
		return stream.Range{From: stream.Position{Num: from}, To: stream.Position{Num: to}}
	}
	c := cursor{last: 2, above: []stream.Range{rng(4, 6), rng(9, 10)}}
	type want struct {
		step       step
		from, next int64
	}
	steps := []struct {
		seq     uint64
		hasSpan bool
		want    want
	}{
		{3, false, want{takeMessage, 2, 3}},
		{7, true, want{endSpan, 2, 4}}, // 4 was deleted
		{7, true, want{endSpan, 4, 4}}, // still the same batch
		{7, false, want{takeMessage, 6, 7}},
		{10, false, want{endSpan, 7, 9}},
		{10, false, want{skipMessage, 10, 10}},
		{11, false, want{takeMessage, 10, 11}},
	}
	for i, s := range steps {
		if i == 0 || steps[i-1].want.step != skipMessage {
			c.begin()
		}
		if i == 1 {
			c.from = 2 // the same batch
		}
		got := want{c.advance(s.seq, s.hasSpan), c.from, c.last}
		if got != s.want {
			t.Fatalf("step %d, message %d: %+v, want %+v", i, s.seq, got, s.want)
		}
	}
}
