//penstock:pure

package nats

import (
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// content is the part of a message from which a record is made.
type content struct {
	seq     uint64
	subject string
	header  natsgo.Header
	data    []byte
	at      time.Time
	// messages that the consumer has not delivered yet, counted at this delivery; 0 if unknown
	pending   uint64
	noMessage bool // only seq is set: the stream has no unread message up to seq
}

// message is a message of a shared consumer that this process received and has not acknowledged.
type message struct {
	content                // all but seq is cleared when it is handed out
	reply    string        // subject for acknowledgements of the last delivery
	extended time.Duration // time of the last delivery or in-progress signal
	settled  bool
	bytes    int64 // memory used while queued
}

// messageOverhead estimates the memory, in bytes, that a message needs in addition to its content.
const messageOverhead = 300

func (m *message) size() int64 {
	n := messageOverhead + len(m.data) + len(m.subject) + len(m.reply)
	for name, values := range m.header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return int64(n)
}

// run is a partition that the engine has assigned to this session. Its messages have ascending
// sequences, with gaps for messages of other processes. A redelivered message may have a lower
// sequence than the last message of every run. It then begins a new run, because positions in a
// partition only ascend:
//
//	delivered   1 2 3 7 8 4 9 5
//	run 1       1 2 3 7 8   9
//	run 2                 4   5
type run struct {
	part      *stream.Partition
	number    uint32     // number of the assignment
	handedOut uint64     // the last sequence handed out
	last      uint64     // the last sequence queued
	queue     []*message // not handed out yet
	out       []*message // handed out and not removed by settle; ascending
}

func (r *run) idle() bool { return len(r.queue) == 0 && len(r.out) == 0 }

// arrival is the result of take: the treatment of a message that the server has delivered.
type arrival uint8

const (
	queued   arrival = iota
	merged           // already held: the new delivery replaces the previous one
	repeated         // already settled, but the acknowledgement was lost: send it again
	unplaced         // needs another run
)

// deliveries holds the messages that a session has received and not settled (delivered,
// dead-lettered or dropped). It is not safe for concurrent use.
type deliveries struct {
	runs  []*run
	open  map[uint64]*message
	acked recent
	bytes int64 // size of the queued messages
	last  int   // index of the run of the last batch; fill tries it last
}

func newDeliveries() *deliveries {
	return &deliveries{open: make(map[uint64]*message), acked: newRecent(keptAcked)}
}

// take queues a message in a run, a partition of this session with ascending sequences. The last
// sequence of the run must be below that of the message. If several runs qualify, take chooses the
// one with the highest last sequence.
func (d *deliveries) take(m *message) arrival {
	if known := d.open[m.seq]; known != nil {
		known.reply, known.extended = m.reply, m.extended
		return merged
	}
	if d.acked.has(m.seq) {
		return repeated
	}
	var best *run
	for _, r := range d.runs {
		if r.last < m.seq && (best == nil || r.last > best.last) {
			best = r
		}
	}
	if best == nil {
		return unplaced
	}
	best.queue = append(best.queue, m)
	best.last = m.seq
	d.open[m.seq] = m
	m.bytes = m.size()
	d.bytes += m.bytes
	return queued
}

// add adds a run for part. The run accepts only messages with a sequence of at least seq.
func (d *deliveries) add(part *stream.Partition, number uint32, seq uint64) {
	d.runs = append(d.runs, &run{part: part, number: number, handedOut: seq - 1, last: seq - 1})
}

// spare returns the id of a run without unsettled messages, or "" if each run has some.
func (d *deliveries) spare() string {
	for _, r := range d.runs {
		if r.idle() {
			return r.part.ID
		}
	}
	return ""
}

// remove removes the run with the given partition id.
func (d *deliveries) remove(id string) {
	d.runs = slices.DeleteFunc(d.runs, func(r *run) bool { return r.part.ID == id })
}

// fill appends queued messages of the run r, a partition of this session, to b. If r is nil, it
// uses the next run with queued messages, in round-robin order. It returns the messages and the
// run, or nil if no run has queued messages.
func (d *deliveries) fill(b *stream.Batch, r *run) ([]*message, *run) {
	if r != nil {
		return d.fillFrom(b, r), r
	}
	for i := range d.runs {
		at := (d.last + 1 + i) % len(d.runs)
		if r := d.runs[at]; len(r.queue) > 0 {
			d.last = at
			return d.fillFrom(b, r), r
		}
	}
	return nil, nil
}

func (d *deliveries) fillFrom(b *stream.Batch, r *run) []*message {
	from, taken := r.handedOut, 0
	for taken < len(r.queue) && !b.Full() {
		m := r.queue[taken]
		appendRecord(b, &m.content)
		d.bytes -= m.bytes
		r.handedOut = m.seq
		taken++
	}
	used := r.queue[:taken:taken]
	r.queue = r.queue[taken:]
	if len(r.queue) == 0 {
		r.queue = nil
	}
	r.out = append(r.out, used...)
	readers.ExtendSpan(b, stream.Span{Part: r.part, Assignment: r.number}, int64(from), int64(r.handedOut))
	return used
}

// appendRecord appends the data of a message to b as a record. The position of the record is the
// sequence of the message.
func appendRecord(b *stream.Batch, c *content) {
	readers.AppendRecord(b, c.data, stream.Position{Num: int64(c.seq)})
}

// settle acknowledges the messages that are settled (delivered, dead-lettered or dropped) according
// to the progress m. It considers only the run of m's partition and assignment. For each message
// that was not settled before, it appends the reply subject to replies. If above is false, settle
// uses only the watermark of m, and ignores the settled ranges above it.
func (d *deliveries) settle(m *stream.Mark, above bool, replies []string) []string {
	for _, r := range d.runs {
		if r.part.ID != m.Part.ID || r.number != m.Assignment {
			continue
		}
		if above {
			replies = d.settleAbove(r, m.Above, replies)
		}
		done := 0
		for done < len(r.out) && r.out[done].seq <= sequence(m.Watermark) {
			replies = d.ack(r.out[done], replies)
			r.out[done] = nil
			done++
		}
		if r.out = r.out[done:]; len(r.out) == 0 {
			r.out = nil
		}
	}
	return replies
}

// settleAbove acknowledges the messages of r in the settled ranges above the watermark, and appends
// their reply subjects to replies. The ranges and the messages are in ascending order.
func (d *deliveries) settleAbove(r *run, above []stream.Range, replies []string) []string {
	i := 0
	for k := range above {
		from, to := sequence(above[k].From), sequence(above[k].To)
		for i < len(r.out) && r.out[i].seq <= from {
			i++
		}
		for ; i < len(r.out) && r.out[i].seq <= to; i++ {
			replies = d.ack(r.out[i], replies)
		}
	}
	return replies
}

func (d *deliveries) ack(m *message, replies []string) []string {
	if m.settled {
		return replies
	}
	m.settled = true
	delete(d.open, m.seq)
	d.acked.add(m.seq)
	return append(replies, m.reply)
}

func sequence(p stream.Position) uint64 {
	if p.Num < 0 {
		return 0
	}
	return uint64(p.Num)
}

// due appends the reply subjects of unsettled messages that need an in-progress signal. A message
// needs one if its last delivery or signal was at least `every` ago. due sets the time of the last
// signal to now.
func (d *deliveries) due(now, every time.Duration, replies []string) []string {
	for _, m := range d.open {
		if now-m.extended >= every {
			m.extended = now
			replies = append(replies, m.reply)
		}
	}
	return replies
}

// release removes all unsettled messages and all runs (partitions) of the session. It returns the
// reply subjects of these messages, so that the server can redeliver them at once.
func (d *deliveries) release() (replies []string) {
	for _, m := range d.open {
		replies = append(replies, m.reply)
	}
	d.runs, d.open, d.bytes = nil, make(map[uint64]*message), 0
	return replies
}

// empty reports whether no message is queued: each one was handed out in a batch.
func (d *deliveries) empty() bool { return d.bytes == 0 }

// deletedUnread compares two states of a consumer. It returns the minimum number of messages that
// were deleted between the two states before the consumer delivered them. A state has the last
// delivered sequence of the stream and the number of deliveries. first is the current first
// sequence of the stream. Example: the sequence grew by 90 and the number of deliveries by 40. Then
// 50 sequences were not delivered. Of these, only sequences below first count as deleted.
func deletedUnread(before, now jetstream.SequenceInfo, first uint64) uint64 {
	if now.Stream < before.Stream || now.Consumer < before.Consumer || first <= before.Stream+1 {
		return 0
	}
	passed, delivered := now.Stream-before.Stream, now.Consumer-before.Consumer
	if passed <= delivered {
		return 0
	}
	return min(passed-delivered, first-1-before.Stream)
}

// keptAcked is the number of acknowledged sequences that a session remembers. If an acknowledgement
// is lost with a connection, the server redelivers the message. The session then repeats the
// acknowledgement, and does not pass the message to the engine again.
const keptAcked = 1 << 16

// recent is a set with a maximum size. A new number replaces the oldest one.
type recent struct {
	ring []uint64
	at   int
	set  map[uint64]int // by number: occurrences in ring
}

func newRecent(n int) recent {
	return recent{ring: make([]uint64, 0, n), set: make(map[uint64]int)}
}

func (r *recent) has(n uint64) bool { return r.set[n] > 0 }

func (r *recent) add(n uint64) {
	r.set[n]++
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, n)
		return
	}
	old := r.ring[r.at]
	if r.set[old]--; r.set[old] == 0 {
		delete(r.set, old)
	}
	r.ring[r.at] = n
	r.at = (r.at + 1) % len(r.ring)
}
