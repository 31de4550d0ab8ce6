package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// Sink returns the sink's entry in the list of components.
func Sink() stream.Component {
	return stream.NewComponent(stream.SinkRole, "nats", DefaultSinkOptions, NewSink)
}

// StreamSink publishes to streams. It implements stream.Sink.
type StreamSink struct {
	o      SinkOptions
	host   stream.Host
	client *client
	route  string    // pipeline and route, with a slash after each; set by Open
	makers sync.Pool // of *messageMaker
	out    *publisher
	bytes  *semaphore.Weighted // of published messages that are not acknowledged
	places *semaphore.Weighted // of published messages that are not acknowledged
	doubts doubts
}

// sinkCounters are the counters that are shown from startup, even while they are zero.
var sinkCounters = []string{
	"records_sent", "bytes_sent", "records_refused", "duplicates", "possible_duplicates",
}

// NewSink returns a sink. It does not connect.
func NewSink(o SinkOptions, h stream.Host) (*StreamSink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.subject == nil && o.id == nil && o.headers == nil { // Shape was not called
		if err := o.compile(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	s := &StreamSink{o: o, host: h, bytes: semaphore.NewWeighted(maxInFlight),
		places: semaphore.NewWeighted(maxUnacked), doubts: newDoubts()}
	s.makers.New = func() any { return newMessageMaker(&s.o, s.route) }
	for _, name := range sinkCounters {
		h.Count(name, 0)
	}
	return s, nil
}

// Limits for messages that were published and not acknowledged yet. A server refuses messages for a
// stream while more than 10,000 messages or 128 MiB wait to be stored there.
const (
	maxInFlight   = 32 << 20
	maxUnacked    = 8000
	stallWait     = 5 * time.Second // maximum wait for room below maxUnacked
	responseBound = time.Minute     // maximum wait for the responses to maxUnacked messages
	abandonBound  = 5 * time.Second // for responses after the end of an attempt, if room is needed
)

// Open implements stream.Sink. It connects. If the subject is not an expression, it checks that a
// stream accepts the subject. After some errors of the server, the library closes the connection
// and does not reconnect. The route then restarts with a new connection.
func (s *StreamSink) Open(ctx context.Context, o stream.SinkOptions) error {
	c, err := s.o.Connection.connect(s.host.Log(), -1)
	if err != nil {
		return err
	}
	out, err := newPublisher(c.conn)
	if err != nil {
		c.close()
		return err
	}
	s.client, s.out, s.route = c, out, o.Pipeline+"/"+o.Route+"/"
	closed := make(chan struct{})
	c.conn.SetClosedHandler(func(*natsgo.Conn) { close(closed) }) // not called for our own Close
	if err := s.check(ctx); err != nil {
		c.close()
		return err
	}
	s.host.Go("nats connection", func(ctx context.Context) error {
		select {
		case <-closed:
			return s.disconnected()
		case <-ctx.Done():
			return nil
		}
	})
	o.Lanes([]stream.Lane{{Name: s.o.URL + "/" + s.o.target(), Worker: s}})
	return nil
}

func (s *StreamSink) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.o.ConnectTimeout)
	defer cancel()
	if s.o.subject != nil {
		if s.o.Stream == "" {
			return nil
		}
		_, info, err := s.client.openStream(ctx, s.o.Stream, "")
		if err != nil {
			return err
		}
		return s.observeStream(&info.Config)
	}
	subject := string(s.o.Subject)
	name, err := s.client.js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf(
			"no stream at NATS %s takes the subject %q: create one, or correct the subject: %w",
			s.o.URL, subject, err)
	case err != nil:
		return s.client.requestError(s.o.Stream, err)
	case s.o.Stream != "" && name != s.o.Stream:
		return fmt.Errorf(
			"stream %q takes the subject %q, and the option stream is %q: correct one of them",
			name, subject, s.o.Stream)
	}
	return s.observe(ctx, name)
}

// Close implements stream.Sink. It closes the connection, and ends all waits for responses.
func (s *StreamSink) Close() error {
	if s.client != nil {
		s.client.close()
		s.out.disconnect()
	}
	return nil
}

// Deliver implements stream.Worker. It publishes all records. It returns when each has an outcome,
// or when ctx is done. A record that gets no answer within responseBound counts as failed.
func (s *StreamSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	kept := b.AppendKept(nil)
	if len(kept) == 0 {
		return stream.Report{}, nil
	}
	if !s.client.conn.IsConnected() {
		return stream.Report{}, s.disconnected()
	}
	weight := min(b.RawBytes()+int64(len(kept))*messageOverhead, maxInFlight)
	if err := s.bytes.Acquire(ctx, weight); err != nil {
		return stream.Report{}, context.Cause(ctx)
	}
	defer s.bytes.Release(weight)
	d := &delivery{s: s, fates: make([]error, len(kept))}
	if s.o.subject != nil {
		d.subjects = make([]string, len(kept))
	}
	first := s.doubts.begin(idOf(b, kept[0]), time.Now())
	if time.Since(first) > s.doubts.window {
		s.host.Count("possible_duplicates", int64(len(kept)))
		first = time.Now()
	}
	if err := d.run(ctx, b, kept); err != nil {
		s.doubts.add(idOf(b, kept[0]), first)
		return stream.Report{}, err
	}
	if k := d.firstUnanswered(); k >= 0 {
		s.doubts.add(idOf(b, kept[k]), first)
	}
	s.host.Count("duplicates", d.duplicates)
	err := verdict.Group(b, kept, d.fates, judge).Outcome("nats: ")
	verdict.Count(s.host, err, len(kept), d.bytes)
	return stream.Report{}, err
}

func (s *StreamSink) disconnected() error {
	if s.client.conn.IsClosed() {
		return fmt.Errorf("NATS %s: %w (%v)", s.o.URL, natsgo.ErrConnectionClosed,
			s.client.conn.LastError())
	}
	if err := s.client.refused(); err != nil {
		return &stream.Misconfigured{Err: err}
	}
	return fmt.Errorf("NATS %s: %w", s.o.URL, natsgo.ErrDisconnected)
}

// delivery is one attempt to deliver a batch. It is used by one goroutine, apart from the
// publisher, which stores the outcomes of messages in fates.
type delivery struct {
	s          *StreamSink
	fates      []error  // by index in the kept records
	subjects   []string // by index in the kept records; nil: all have the same
	bytes      int64
	duplicates int64
}

func (d *delivery) subject(k int) string {
	if d.subjects == nil {
		return string(d.s.o.Subject)
	}
	return d.subjects[k]
}

// run publishes the messages, at most maxUnacked at once, and waits for the outcome of each.
func (d *delivery) run(ctx context.Context, b *stream.Batch, kept []int) error {
	t := d.s.makers.Get().(*messageMaker)
	defer d.s.makers.Put(t)
	t.begin(b)
	for first := 0; first < len(kept); first += maxUnacked {
		part := kept[first:min(first+maxUnacked, len(kept))]
		if err := d.runPart(ctx, t, b, first, part); err != nil {
			return err
		}
	}
	return d.lookUp(ctx)
}

// runPart publishes the messages of part and waits for their outcomes. first is the index of the
// first of them among the kept records of the batch (neither dropped nor dead-lettered).
func (d *delivery) runPart(ctx context.Context, t *messageMaker, b *stream.Batch, first int,
	part []int) error {
	fates, n := d.fates[first:first+len(part)], int64(len(part))
	if full := d.s.reserve(ctx, n); full != nil {
		for k := range fates {
			fates[k] = full
		}
		return context.Cause(ctx)
	}
	free := func() { d.s.places.Release(n) }
	r := d.s.out.begin(fates)
	last := ""
	for k, i := range part {
		m, err := t.make(b, i)
		if err != nil {
			r.fail(k, &messages.RecordError{Err: err})
			continue
		}
		if m.Subject != last {
			last = m.Subject
			d.s.client.denials.forget(last)
		}
		if d.subjects != nil {
			d.subjects[first+k] = last
		}
		d.bytes += int64(len(m.Data))
		r.send(k, m)
	}
	if err := d.await(ctx, r, first); err != nil {
		r.abandon(free)
		return err
	}
	r.end()
	free()
	d.duplicates += r.duplicates
	return nil
}

// reserve waits at most stallWait for room for n messages that are not acknowledged.
func (s *StreamSink) reserve(ctx context.Context, n int64) error {
	if s.places.TryAcquire(n) {
		return nil
	}
	s.out.expire(time.Now().Add(-abandonBound))
	ctx, cancel := context.WithTimeoutCause(ctx, stallWait, jetstream.ErrTooManyStalledMsgs)
	defer cancel()
	if s.places.Acquire(ctx, n) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// await waits for the outcomes of messages. first is the index of the first of them among the kept
// records of the batch (neither dropped nor dead-lettered). await does not wait for messages with a
// denied subject, because they get no response.
func (d *delivery) await(ctx context.Context, r *responses, first int) error {
	limit := time.NewTimer(responseBound)
	defer limit.Stop()
	for {
		changed := d.failDenied(r, first)
		select {
		case <-r.done:
			return nil
		case <-changed:
		case <-limit.C:
			r.failAll(jetstream.ErrAsyncPublishTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// failDenied makes messages fail if the server has denied their subject. The returned channel is
// closed at the next denial. The caller should then call failDenied again.
func (d *delivery) failDenied(r *responses, first int) (changed <-chan struct{}) {
	changed, denied := d.s.client.denials.of(string(d.s.o.Subject))
	if d.subjects == nil && denied != nil {
		r.failAll(denied)
	}
	for k := 0; d.subjects != nil && k < len(r.outcomes); k++ {
		if _, denied := d.s.client.denials.of(d.subjects[first+k]); denied != nil {
			r.fail(k, denied)
		}
	}
	return changed
}

// lookUp looks up the subjects of messages for which the server has reported that no stream
// responds (status 503). There are two causes: no stream accepts the subject, or the stream has
// no leader at present. Only the first cause is permanent.
func (d *delivery) lookUp(ctx context.Context) error {
	known := make(map[string]error)
	for k, err := range d.fates {
		if err != jetstream.ErrNoStreamResponse {
			continue
		}
		subject := d.subject(k)
		found, ok := known[subject]
		if !ok {
			_, found = d.s.client.js.StreamNameBySubject(ctx, subject)
			known[subject] = found
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(found, jetstream.ErrStreamNotFound) {
			d.fates[k] = &unknownSubjectError{subject: subject, byRecord: d.s.o.subject != nil}
		}
	}
	return nil
}

// unknownSubjectError means that no stream accepts a subject.
type unknownSubjectError struct {
	subject  string
	byRecord bool // the record determines the subject
}

// Error implements error. It includes a remedy.
func (e *unknownSubjectError) Error() string {
	return fmt.Sprintf("no stream takes the subject %q: create one, or correct the subject",
		e.subject)
}
