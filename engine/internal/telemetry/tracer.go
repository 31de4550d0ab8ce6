package telemetry

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Tracer makes OpenTelemetry spans from the events of one route's sender. A batch has a span from
// its arrival in the sender until it is settled, split into pieces, or deferred (it later returns
// as a new batch). Each attempt to deliver the batch has a child span, and the span of the batch
// also has links to the child spans of its first attempts (maxLinks). Only the goroutine that runs
// the sender's event loop may use a Tracer.
type Tracer struct {
	to      *Exporter
	route   string
	started time.Time // time to which the times of events are relative
	share   float64
	random  *rand.Rand

	batches  map[uint64]*batchSpan // by sequence number
	attempts map[uint64]*span      // by id
	lanes    []string              // names

	cut    *batchSpan // the batch that was split last; its pieces follow immediately
	cutSeq uint64
}

// Limits of the spans of one route. Spans above maxOpen and maxAttempts are dropped and counted.
const (
	maxOpen     = 4096        // batches that are traced at the same time
	maxAttempts = 4 * maxOpen // attempts that are traced at the same time
	maxLinks    = 128         // links of a batch; more are omitted
)

type batchSpan struct {
	span
	attempts int
}

// NewTracer returns the tracer of a route. It traces the given share of the batches. Equal seeds
// give equal ids.
func (e *Exporter) NewTracer(route string, started time.Time, share float64, seed uint64) *Tracer {
	return &Tracer{
		to: e, route: route, started: started, share: share, random: rand.New(rand.NewPCG(seed, 0)),
		batches: make(map[uint64]*batchSpan), attempts: make(map[uint64]*span),
	}
}

// Event adds an event, and the commands that the event has caused, to the spans of their batches.
// If e is a LaneUp event, name is the name of the new lane (the place of a worker in the sender).
// For other events, name is not used.
func (t *Tracer) Event(e *control.Event, do []control.Command, name string) {
	now := nanos(t.started.Add(e.Now))
	switch e.Kind {
	case control.LaneUp:
		for len(t.lanes) <= int(e.Lane) {
			t.lanes = append(t.lanes, "")
		}
		t.lanes[e.Lane] = name
	case control.Offer:
		t.offer(e, now)
	case control.Answer:
		t.answer(e, now)
	case control.Piece:
		t.split(e, now)
	}
	for i := range do {
		switch c := &do[i]; c.Kind {
		case control.Start:
			t.start(c, now)
		case control.Settle:
			code := statusOK
			if c.Lane < 0 {
				code = statusError
			}
			t.end(c.Seq, now, code, "settled")
		case control.Defer: // the batch will return as a new item
			t.end(c.Seq, now, 0, "deferred")
		}
	}
}

func (t *Tracer) id(bytes int) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], t.random.Uint64())
	binary.BigEndian.PutUint64(b[8:], t.random.Uint64()|1) // an id of zero is invalid
	return hex.EncodeToString(b[16-bytes:])
}

func (t *Tracer) offer(e *control.Event, now string) {
	if t.share < 1 && t.random.Float64() >= t.share {
		return
	}
	t.open(e, now, t.id(16), "")
}

func (t *Tracer) open(e *control.Event, now, trace, parent string) {
	if len(t.batches) >= maxOpen {
		t.to.dropped.Add(1)
		return
	}
	t.batches[e.Seq] = &batchSpan{span: span{
		TraceID: trace, SpanID: t.id(8), Parent: parent, Name: "batch",
		Kind: kindInternal, Start: now,
		Attributes: attributes(
			"penstock.route",
			t.route,
			"penstock.batch",
			strconv.FormatUint(e.Seq, 10),
			"penstock.bytes",
			strconv.FormatInt(e.Bytes, 10),
		),
	}}
}

// split handles one piece of a batch that was split. A piece has some of the batch's records. If
// the batch is traced and the piece must be sent again, split starts a span for the piece, as a
// child of the batch's span. The first piece also ends the span of the batch.
func (t *Tracer) split(e *control.Event, now string) {
	if b := t.batches[e.Parent]; b != nil {
		t.cut, t.cutSeq = b, e.Parent
		t.end(e.Parent, now, 0, "cut")
	}
	if t.cut != nil && t.cutSeq == e.Parent && e.Outcome == control.Retryable {
		t.open(e, now, t.cut.TraceID, t.cut.SpanID)
	}
}

func (t *Tracer) start(c *control.Command, now string) {
	b := t.batches[c.Seq]
	if b == nil {
		return
	}
	if len(t.attempts) >= maxAttempts {
		t.to.dropped.Add(1)
		return
	}
	worker := ""
	if int(c.Lane) < len(t.lanes) {
		worker = t.lanes[c.Lane]
	}
	s := &span{
		TraceID: b.TraceID, SpanID: t.id(8), Parent: b.SpanID, Name: "deliver",
		Kind: kindClient, Start: now,
		Attributes: attributes("penstock.route", t.route, "penstock.worker", worker,
			"penstock.attempt", strconv.FormatUint(uint64(c.Number), 10)),
	}
	t.attempts[c.ID] = s
	b.attempts++
	if len(b.Links) < maxLinks {
		b.Links = append(b.Links, link{s.TraceID, s.SpanID})
	}
}

var outcomes = map[control.Outcome]string{
	control.Delivered: "delivered", control.Throttled: "throttled", control.Retryable: "retryable",
	control.TimedOut: "timed out", control.Rejected: "rejected",
	control.Misconfigured: "misconfigured", control.Split: "split",
}

func (t *Tracer) answer(e *control.Event, now string) {
	s := t.attempts[e.ID]
	if s == nil {
		return
	}
	delete(t.attempts, e.ID)
	s.End = now
	s.Attributes = append(s.Attributes, attributes("penstock.outcome", outcomes[e.Outcome])...)
	if s.Status.Code = statusError; e.Outcome == control.Delivered || e.Outcome == control.Split {
		s.Status.Code = statusOK
	}
	t.to.add(s)
}

// end ends the span of a batch with a status code, adds attributes for the number of attempts and
// for the way in which it ended (how), and queues the span for a push.
func (t *Tracer) end(seq uint64, now string, code int, how string) {
	b := t.batches[seq]
	if b == nil {
		return
	}
	delete(t.batches, seq)
	b.End, b.Status.Code = now, code
	b.Attributes = append(b.Attributes,
		attributes("penstock.attempts", strconv.Itoa(b.attempts), "penstock.end", how)...)
	t.to.add(&b.span)
}
