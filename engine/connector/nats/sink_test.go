package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/connector/nats"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// sinkOn opens a sink and returns it with its host.
func sinkOn(
	t *testing.T,
	c *cluster,
	set func(*nats.SinkOptions),
) (*nats.StreamSink, *streamtest.Host) {
	t.Helper()
	o := nats.DefaultSinkOptions()
	o.URL, o.Subject, o.Format, o.ConnectTimeout = c.url(), "orders.out", "raw", 2*time.Second
	if set != nil {
		set(o)
	}
	h := streamtest.NewHost(t)
	s, err := nats.NewSink(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "r",
		Lanes: func([]stream.Lane) {}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, h
}

func deliver(t *testing.T, s *nats.StreamSink, b *stream.Batch) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := s.Deliver(ctx, stream.Attempt{Value: b})
	return err
}

// stored returns the messages of the stream.
func (c *cluster) stored(s jetstream.Stream) (out []*jetstream.RawStreamMsg) {
	c.t.Helper()
	info, err := s.Info(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(c.t.Context(), seq)
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// TestSinkRepeats checks that a batch delivered twice is stored once, under the ids of its records.
func TestSinkRepeats(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	st := c.create(nil)
	s, h := sinkOn(t, c,
		func(o *nats.SinkOptions) { o.Headers = map[string]expr.Text{"Where": `"here"`} })
	b := streamtest.Lines("one", "two", "three")
	for range 2 {
		if err := deliver(t, s, b); err != nil {
			t.Fatal(err)
		}
	}
	got := c.stored(st)
	if len(got) != 3 || string(got[2].Data) != "three" || got[0].Header.Get("Where") != "here" {
		t.Fatalf("the stream has %d messages: %v", len(got), got)
	}
	b.Split()
	if want := "p/r/" + string(b.AppendRecordID(nil, 1)); got[1].Header.Get("Nats-Msg-Id") != want {
		t.Errorf("the id is %q, want %q", got[1].Header.Get("Nats-Msg-Id"), want)
	}
	if n := h.Counted("duplicates"); n != 3 {
		t.Errorf("%d duplicates are counted, want 3", n)
	}
}

// TestSinkLargeBatch checks a batch with more messages than may be in flight.
func TestSinkLargeBatch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	st := c.create(nil)
	s, h := sinkOn(t, c, nil)
	lines := make([]string, 20_000)
	for i := range lines {
		lines[i] = fmt.Sprint("line ", i)
	}
	if err := deliver(t, s, streamtest.Lines(lines...)); err != nil {
		t.Fatal(err)
	}
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sent := h.Counted("records_sent"); info.State.Msgs != 20_000 || sent != 20_000 {
		t.Errorf("%d messages are stored and %d counted, want 20000", info.State.Msgs, sent)
	}
}

// acknowledge sets whether the stream acknowledges messages.
func (c *cluster) acknowledge(st jetstream.Stream, on bool) {
	c.t.Helper()
	cfg := st.CachedInfo().Config
	cfg.NoAck = !on
	until(c.t, "the stream's settings", func() bool {
		_, err := c.js.UpdateStream(c.t.Context(), cfg)
		return err == nil
	})
}

// subscribe receives the messages of a subject without the stream.
func (c *cluster) subscribe(subject string) *natsgo.Subscription {
	c.t.Helper()
	s, err := c.conn.SubscribeSync(subject)
	if err == nil {
		err = c.conn.Flush()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// TestSinkUnackedAfterAttempts checks that the messages of an attempt that has ended count as
// unacknowledged until the stream's response arrives or the connection is lost.
func TestSinkUnackedAfterAttempts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	st := c.create(nil)
	s, _ := sinkOn(t, c, nil)
	acknowledge := func(on bool) { c.acknowledge(st, on) }
	other := c.subscribe("orders.out")
	published := func() int {
		n, _, err := other.Pending()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b := streamtest.Lines(make([]string, 5000)...)
	acknowledge(false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Deliver(ctx, stream.Attempt{Value: b})
		ended <- err
	}()
	until(t, "the messages", func() bool { return published() == 5000 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("the first attempt ended with %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Deliver(ctx, stream.Attempt{Value: b}); err == nil {
		t.Error("the second attempt has succeeded")
	}
	if n := published(); n != 5000 {
		t.Errorf("%d messages are unacknowledged, want the 5000 of the first attempt", n)
	}
	acknowledge(true)
	c.restartServer()
	until(t, "another attempt", func() bool { return deliver(t, s, b) == nil })
}

// TestSinkSplits checks that individually refused records are dead-lettered and the others are
// delivered.
func TestSinkSplits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *server.Options) { o.MaxPayload = 4096 })
	st := c.create(func(o *jetstream.StreamConfig) { o.MaxMsgSize = 1000 })
	s, _ := sinkOn(t, c, func(o *nats.SinkOptions) { o.Subject = `"orders." + message[0:1]` })
	b := streamtest.Lines("a", strings.Repeat("b", 2000), "c", strings.Repeat("d", 5000), " e",
		"f")
	split, ok := deliver(t, s, b).(*stream.Split)
	if !ok || len(split.Done) != 1 || len(split.Refused) != 1 || len(split.Rest) != 0 {
		t.Fatalf("the outcome is %#v", split)
	}
	if split.Done[0].Value.Kept() != 3 || split.Refused[0].Value.Kept() != 3 {
		t.Errorf("%d records are delivered and %d refused", split.Done[0].Value.Kept(),
			split.Refused[0].Value.Kept())
	}
	reasons := fmt.Sprint(split.Refusals[0].(*stream.RefusedError).Reasons)
	for _, want := range []string{"message size exceeds maximum allowed", "maximum payload exceeded", "holds a space"} {
		if !strings.Contains(reasons, want) {
			t.Errorf("the reasons lack %q: %s", want, reasons)
		}
	}
	if n := len(c.stored(st)); n != 3 {
		t.Errorf("the stream has %d messages, want 3", n)
	}
}

// TestSinkOutcomes checks failures of whole batches.
func TestSinkOutcomes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(func(o *jetstream.StreamConfig) { o.MaxMsgs, o.Discard = 2, jetstream.DiscardNew })
	s, _ := sinkOn(t, c, func(o *nats.SinkOptions) { o.ID = "message" })
	byRecord, _ := sinkOn(t, c, func(o *nats.SinkOptions) { o.Subject = `"other." + message` })

	split, ok := deliver(t, s, streamtest.Lines("1", "2", "3")).(*stream.Split)
	if !ok || split.Done[0].Value.Kept() != 2 || split.Rest[0].Value.Kept() != 1 {
		t.Errorf("a stream that gets full: %v", split)
	}
	if err, ok := deliver(t, s, streamtest.Lines("4")).(*stream.Throttled); !ok ||
		!strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Errorf("a full stream: %v", err)
	}
	split, ok = deliver(t, byRecord, streamtest.Lines("a")).(*stream.Split)
	if !ok || len(split.Refused) != 1 ||
		!strings.Contains(split.Err.Error(), `no stream takes the subject "other.a"`) {
		t.Errorf("a subject of no stream, by expression: %v", split)
	}
	if err := c.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	if err, ok := deliver(t, s, streamtest.Lines("5")).(*stream.Misconfigured); !ok ||
		!strings.Contains(err.Error(), `no stream takes the subject "orders.out"`) {
		t.Errorf("a stream that was deleted: %v", err)
	}
	c.server.Shutdown()
	until(t, "the sink notices", func() bool {
		err := deliver(t, s, streamtest.Lines("6"))
		_, misconfigured := err.(*stream.Misconfigured)
		return err != nil && !misconfigured && strings.Contains(err.Error(), "disconnected")
	})
}

// TestSinkPossibleDuplicates checks the counter of possible duplicates. A batch counts if its first
// attempt got no response of the stream, and it is repeated after the stream has forgotten its ids.
func TestSinkPossibleDuplicates(t *testing.T) {
	t.Parallel()
	type other = *natsgo.Subscription // of the same subject
	for want, end := range map[string]func(*cluster, other, context.CancelFunc){
		"context canceled": func(_ *cluster, _ other, cancel context.CancelFunc) { cancel() },
		"disconnected":     func(c *cluster, _ other, _ context.CancelFunc) { c.restartServer() },
		"invalid jetstream publish response": func(c *cluster, o other, _ context.CancelFunc) {
			for range 3 {
				m, err := o.NextMsg(patience)
				if err == nil {
					err = m.Respond([]byte("ok"))
				}
				if err != nil {
					c.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			possibleDuplicates(t, end, want)
		})
	}
}

// possibleDuplicates delivers a batch twice. In the first attempt, the stream stores the messages
// but does not respond, and the function end makes the attempt fail with an error that contains
// want. Before the second attempt, the stream forgets the ids, so the sink must count all messages
// as possible duplicates.
func possibleDuplicates(t *testing.T,
	end func(*cluster, *natsgo.Subscription, context.CancelFunc), want string) {
	t.Helper()
	c := newCluster(t, nil)
	short := func(o *jetstream.StreamConfig) { o.Duplicates = 100 * time.Millisecond }
	st := c.create(short)
	s, h := sinkOn(t, c, nil)
	acknowledge := func(on bool) { c.acknowledge(st, on) }
	acknowledge(false)
	other := c.subscribe("orders.out")
	b := streamtest.Lines("one", "two", "three")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Deliver(ctx, stream.Attempt{Value: b})
		ended <- err
	}()
	until(t, "the messages", func() bool {
		info, err := st.Info(t.Context())
		return err == nil && info.State.Msgs == 3
	})
	end(c, other, cancel)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("the delivery ended with %v, want %s", err, want)
	}
	acknowledge(true)
	if n := h.Counted("possible_duplicates"); n != 0 {
		t.Errorf("%d possible duplicates after the first attempt", n)
	}
	<-time.After(300 * time.Millisecond)
	until(t, "the repetition", func() bool { return deliver(t, s, b) == nil })
	if n, stored := h.Counted("possible_duplicates"), len(c.stored(st)); n != 3 || stored != 6 {
		t.Errorf("%d possible duplicates are counted and %d messages stored, want 3 and 6", n,
			stored)
	}
}

// TestSinkClosedConnection checks that the sink connects again after the library has closed the
// connection. The library does so if a message is larger than a limit that the server has lowered
// since the connection was made.
func TestSinkClosedConnection(t *testing.T) {
	t.Parallel()
	var o *server.Options
	c := newCluster(t, func(set *server.Options) { o = set })
	c.create(nil)
	out, err := c.js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "COPY", Subjects: []string{"copy"}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { nats: { url: %q, stream: ORDERS } }
    sink: { nats: { url: %q, subject: copy, format: raw, headers: { Long: %q } } }
`, c.url(), c.url(), fmt.Sprintf("%q", strings.Repeat("x", 300))), newArrivals(), route{})
	if err != nil {
		t.Fatal(err)
	}
	copied := func(want uint64) func() bool {
		return func() bool {
			info, err := out.Info(t.Context())
			return err == nil && info.State.Msgs == want
		}
	}
	c.publish("before", 1)
	until(t, "the first message", copied(1))
	lower := o.Clone()
	lower.MaxPayload = 1000
	if err := c.server.ReloadOptions(lower); err != nil {
		t.Fatal(err)
	}
	c.publish(strings.Repeat("large", 180), 1)
	c.publish("after", 1)
	until(t, "the last message", copied(2))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestSinkStreams checks that a stream without acknowledgements is refused, and that a warning is
// logged for a stream that may forget ids.
func TestSinkStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	for _, o := range []jetstream.StreamConfig{
		{Name: "SILENT", Subjects: []string{"silent"}, NoAck: true},
		{Name: "QUEUE", Subjects: []string{"queue"}, Retention: jetstream.WorkQueuePolicy},
	} {
		if _, err := c.js.CreateStream(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	open := func(set func(*nats.SinkOptions)) (log string, err error) {
		o := nats.DefaultSinkOptions()
		o.URL = c.url()
		set(o)
		var text strings.Builder
		h := loggingHost{streamtest.NewHost(t), slog.New(slog.NewTextHandler(&text, nil))}
		s, err := nats.NewSink(*o, h)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Open(t.Context(), stream.SinkOptions{Lanes: func([]stream.Lane) {}})
		if err == nil {
			err = s.Close()
		}
		return text.String(), err
	}
	for name, set := range map[string]func(*nats.SinkOptions){
		"subject": func(o *nats.SinkOptions) { o.Subject = "silent" },
		"expression": func(o *nats.SinkOptions) {
			o.Subject, o.Stream = `"silent" + message`, "SILENT"
		},
	} {
		const want = `stream "SILENT" has no_ack, so that stored and lost messages cannot be`
		if _, err := open(set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	log, err := open(func(o *nats.SinkOptions) { o.Subject = "queue" })
	if err != nil {
		t.Fatal(err)
	}
	const want = "forgets the ids of deleted messages"
	if !strings.Contains(log, want) {
		t.Errorf("the log has no %q: %s", want, log)
	}
}

// loggingHost is a host with another logger.
type loggingHost struct {
	*streamtest.Host
	log *slog.Logger
}

func (h loggingHost) Log() *slog.Logger { return h.log }

// TestSinkDenied checks the error if the user may not publish to the subject.
func TestSinkDenied(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "x"},
			{Username: "app", Password: "y", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"orders.ok", "$JS.API.>"}},
			}},
		}
	}, natsgo.UserInfo("admin", "x"))
	c.create(nil)
	s, _ := sinkOn(t, c,
		func(o *nats.SinkOptions) { o.User, o.Password, o.Subject = "app", "y", `"orders." + message` })
	split, ok := deliver(t, s, streamtest.Lines("ok", "no")).(*stream.Split)
	if !ok || len(split.Done) != 1 || len(split.Rest) != 1 ||
		!strings.Contains(split.Err.Error(), "ermissions violation") {
		t.Errorf("the outcome is %v", split)
	}
	if err, ok := deliver(t, s, streamtest.Lines("no")).(*stream.Misconfigured); !ok {
		t.Errorf("the outcome is %v", err)
	}
}

// TestSinkOfEngine copies one stream to another while the server restarts. Nothing is lost or
// stored twice.
func TestSinkOfEngine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	out, err := c.js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "COPY", Subjects: []string{"copy"}})
	if err != nil {
		t.Fatal(err)
	}
	texts := c.publish("a", 5000)
	n, err := c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { nats: { url: %q, stream: ORDERS, durable: d, ack_wait: 1s } }
    sink: { nats: { url: %q, subject: copy, stream: COPY, format: raw } }
    batch: { records: 100, linger: 0s }
`, c.url(), c.url()), newArrivals(), route{})
	if err != nil {
		t.Fatal(err)
	}
	count := func() uint64 {
		info, err := out.Info(t.Context())
		if err != nil {
			return 0
		}
		return info.State.Msgs
	}
	until(t, "some messages", func() bool { return count() > 200 })
	c.restartServer()
	until(t, "all messages", func() bool { return count() >= uint64(len(texts)) && c.isDone("d") })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	got := newArrivals()
	for _, m := range c.stored(out) {
		got.counts[string(m.Data)]++
	}
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages are stored twice", n)
	}
}

// TestSinkRoutes checks that two routes can write the same records to one stream, under different
// subjects. Both copies must be stored, although a stream drops a message if it has one with the
// same id under any subject.
func TestSinkRoutes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	st, err := c.js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}})
	if err != nil {
		t.Fatal(err)
	}
	texts := c.publish("a", 10)
	n, err := c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { nats: { url: %q, stream: ORDERS } }
    routes:
      one:
        sink: { nats: { url: %q, subject: out.one, format: raw } }
      two:
        sink: { nats: { url: %q, subject: out.two, format: raw } }
`, c.url(), c.url(), c.url()), newArrivals(), route{once: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.wait(); err != nil {
		t.Fatal(err)
	}
	if got := c.stored(st); len(got) != 2*len(texts) {
		t.Errorf("%d stored, want %d", len(got), 2*len(texts))
	}
}
