package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/kafka"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// consume returns all records of a topic, in order within each partition.
func (c *cluster) consume(topic string) (out []*kgo.Record) {
	c.t.Helper()
	ends, err := c.admin.ListEndOffsets(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	want := 0
	ends.Each(func(o kadm.ListedOffset) { want += int(o.Offset) })
	client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.ConsumeTopics(topic))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for len(out) < want {
		got := client.PollFetches(ctx)
		if err := got.Err(); err != nil {
			c.t.Fatal(err)
		}
		out = append(out, got.Records()...)
	}
	slices.SortStableFunc(out, func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
	return out
}

func valuesOf(records []*kgo.Record) (out []string) {
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

// newSink opens a sink with options, and returns its worker.
func newSink(t *testing.T, c *cluster, set func(*kafka.SinkOptions)) stream.Worker {
	t.Helper()
	return newSinkOn(t, connectortest.NewHost(t), c, set)
}

func newSinkOn(t *testing.T, h stream.Host, c *cluster,
	set func(*kafka.SinkOptions)) stream.Worker {
	t.Helper()
	o := kafka.DefaultSinkOptions()
	o.Brokers, o.Topic, o.Format = c.seeds(), "out", "raw"
	set(o)
	sink, err := kafka.NewSink(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	var worker stream.Worker
	lanes := func(l []stream.Lane) { worker = l[0].Worker }
	if err := sink.Open(t.Context(), stream.SinkOptions{Route: "p/main", Lanes: lanes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	return worker
}

func deliver(t *testing.T, w stream.Worker, b *stream.Batch) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := w.Deliver(ctx, stream.Attempt{Value: b})
	return err
}

func TestSinkSuite(t *testing.T) {
	t.Parallel()
	connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
		c := newCluster(t, kfake.SeedTopics(1, "out"))
		return connectortest.Receiver{
			New: func(t *testing.T, h *streamtest.Host) stream.Sink {
				o := kafka.DefaultSinkOptions()
				o.Brokers, o.Topic, o.Format = c.seeds(), "out", "raw"
				sink, err := kafka.NewSink(*o, h)
				if err != nil {
					t.Fatal(err)
				}
				return sink
			},
			Received: func(*testing.T) []string { return valuesOf(c.consume("out")) },
		}
	}})
}

// TestSinkOfRecreatedTopic checks that the sink asks to be opened again when its topic was deleted
// and created again. The producer keeps the id of the deleted topic.
func TestSinkOfRecreatedTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "out"))
	h := connectortest.NewHost(t)
	w := newSinkOn(t, h, c, func(*kafka.SinkOptions) {})
	if err := deliver(t, w, streamtest.Lines("a")); err != nil {
		t.Fatal(err)
	}
	c.recreate("out", 1)
	until(t, "the request to open the sink again", func() bool {
		_ = deliver(t, w, streamtest.Lines("b"))
		select {
		case <-h.Failed():
			return true
		default:
			return false
		}
	})
	err := h.Stop()
	if _, ok := errors.AsType[*stream.ReopenError](err); !ok {
		t.Errorf("%v, want a ReopenError", err)
	}
}

// TestKeysAndHeaders checks that records with the same key stay in one partition and in order. A
// header must have the value of its expression, and be missing if the expression has no value.
func TestKeysAndHeaders(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "out"))
	w := newSink(t, c, func(o *kafka.SinkOptions) {
		o.Key, o.Format = `k`, "json"
		o.Headers = map[string]expr.Text{"who": `"penstock"`, "none": `missing`}
	})
	var rows streamtest.Rows
	for i := range 200 {
		rows.Record()
		rows.Field("k", stream.Text, fmt.Sprint("key-", i%10))
		rows.Field("n", stream.Number, fmt.Sprint(i))
	}
	if err := deliver(t, w, rows.Batch()); err != nil {
		t.Fatal(err)
	}
	partitions, last := map[string]int32{}, map[string]int{}
	for _, r := range c.consume("out") {
		key := string(r.Key)
		if p, ok := partitions[key]; ok && p != r.Partition {
			t.Errorf("key %s is in partitions %d and %d", key, p, r.Partition)
		}
		partitions[key] = r.Partition
		var n int
		if _, err := fmt.Sscanf(string(r.Value), `{"k":"`+key+`","n":%d}`, &n); err != nil {
			t.Errorf("value %s: %v", r.Value, err)
		}
		if n < last[key] {
			t.Errorf("key %s: %d comes after %d", key, n, last[key])
		}
		last[key] = n
		if len(r.Headers) != 1 || r.Headers[0].Key != "who" || string(r.Headers[0].Value) != "penstock" {
			t.Errorf("headers %v", r.Headers)
		}
	}
	if len(partitions) != 10 {
		t.Errorf("%d keys, want 10", len(partitions))
	}
}

// TestOneTooLarge checks that one oversized record among 100 is refused, and that the others arrive
// once.
func TestOneTooLarge(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "out"))
	w := newSink(t, c, func(o *kafka.SinkOptions) { o.BatchBytes = 2000 })
	var lines, want []string
	for i := range 100 {
		line := fmt.Sprintf("record %d", i)
		if i == 37 {
			line += strings.Repeat("x", 5000)
		} else {
			want = append(want, line)
		}
		lines = append(lines, line)
	}
	refused := drive(t, w, streamtest.Lines(lines...))
	if len(refused) != 1 || !strings.HasPrefix(refused[0], "record 37x") {
		t.Errorf("refused %d records: %.60v", len(refused), refused)
	}
	got := valuesOf(c.consume("out"))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d records have arrived, want %d once each", len(got), len(want))
	}
}

// TestRefusedByBroker checks that only the bad record is refused if a broker refuses a whole batch
// because of it.
func TestRefusedByBroker(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "out"))
	c.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req, res := q.(*kmsg.ProduceRequest), q.ResponseKind().(*kmsg.ProduceResponse)
		bad := false
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.InvalidRecord.Code
				rt.Partitions = append(rt.Partitions, rp)
				bad = bad || strings.Contains(string(p.Records), "poison")
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, bad
	})
	w := newSink(t, c, func(o *kafka.SinkOptions) { o.Compress = "none" })
	lines := []string{"a", "b", "poison", "c", "d"}
	refused := drive(t, w, streamtest.Lines(lines...))
	if !slices.Equal(refused, []string{"poison"}) {
		t.Errorf("refused %v", refused)
	}
	got := valuesOf(c.consume("out"))
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("arrived %v", got)
	}
}

// drive delivers a batch and the remaining parts of its splits, like the sender. It returns the
// texts of the refused records.
func drive(t *testing.T, w stream.Worker, b *stream.Batch) (refused []string) {
	t.Helper()
	rest := []*stream.Batch{b}
	for n := 0; len(rest) > 0; n++ {
		if n > 100 {
			t.Fatal("more than 100 deliveries")
		}
		b, rest = rest[0], rest[1:]
		err := deliver(t, w, b)
		split, ok := err.(*stream.Split)
		switch {
		case err == nil:
			continue
		case !ok:
			t.Fatal(err)
		}
		for _, it := range split.Rest {
			rest = append(rest, it.Value)
		}
		for _, it := range split.Refused {
			for _, i := range it.Value.AppendKept(nil) {
				refused = append(refused, string(it.Value.Text(i)))
			}
		}
	}
	return refused
}

// TestLostAnswer checks that a lost response of a broker causes no duplicate, since the producer is
// idempotent.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "out"))
	var n atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n.Add(1)%3 == 1 {
			return nil, fmt.Errorf("the connection is cut"), true
		}
		return nil, nil, false
	})
	w := newSink(t, c, func(*kafka.SinkOptions) {})
	var lines []string
	for i := range 50 {
		lines = append(lines, fmt.Sprint("record ", i))
	}
	for part := range slices.Chunk(lines, 10) {
		if err := deliver(t, w, streamtest.Lines(part...)); err != nil {
			t.Fatal(err)
		}
	}
	if got := valuesOf(c.consume("out")); !slices.Equal(got, lines) {
		t.Errorf("arrived %d records, want %d in order: %v", len(got), len(lines), got)
	}
}

// TestTopicOfRecord checks that a missing topic named by an expression affects only its own
// records.
func TestTopicOfRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "out-a", "out-b"))
	w := newSink(t, c, func(o *kafka.SinkOptions) { o.Topic = `"out-" + message` })
	refused := drive(t, w, streamtest.Lines("a", "b", "zzz", "a b"))
	slices.Sort(refused)
	if !slices.Equal(refused, []string{"a b", "zzz"}) {
		t.Errorf("refused %v", refused)
	}
	for _, topic := range []string{"out-a", "out-b"} {
		if got := valuesOf(c.consume(topic)); len(got) != 1 {
			t.Errorf("%s has %v", topic, got)
		}
	}
}

// TestKafkaToKafka checks a copy of a topic with keys, headers and tombstones.
func TestKafkaToKafka(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, "in", "out"))
	for i := range 50 {
		r := &kgo.Record{Topic: "in", Partition: int32(i % 2), Key: fmt.Append(nil, "k", i),
			Value: fmt.Append(nil, "v", i)}
		if i%10 == 0 {
			r.Value = nil
		}
		c.send(r)
	}
	n, err := c.run(`
state: /state
pipelines:
  p:
    source: { kafka: { brokers: `+c.brokers()+`, group: g, topics: [in], meta: { key: key } } }
    sink: { kafka: { brokers: `+c.brokers()+`, topic: out, key: key, format: raw } }
`, newArrivals(), route{once: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.wait(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range c.consume("out") {
		value := string(r.Value)
		if r.Value == nil {
			value = "tombstone"
		}
		got[string(r.Key)] = value
	}
	for i := range 50 {
		want := fmt.Sprint("v", i)
		if i%10 == 0 {
			want = "tombstone"
		}
		if key := fmt.Sprint("k", i); got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

// sinkRefusals lists wrong options of the sink with the error messages.
var sinkRefusals = []struct{ name, options, want string }{
	{"no topic", "brokers: ['a:1']", "kafka.topic is missing"},
	{"empty topic", "brokers: ['a:1'], topic: ' '", "kafka.topic is empty: name a topic, or write an expression"},
	{"expression", "brokers: ['a:1'], topic: 'a +'", "kafka.topic: ends too early"},
	{"key", "brokers: ['a:1'], topic: t, key: 'nosuch'",
		`kafka.key: there is no field "nosuch"; if it is meant as text, write '"nosuch"'`},
	{"header", "brokers: ['a:1'], topic: t, headers: { h: '1 +' }", "kafka.headers.h: ends too early"},
	{"acks", "brokers: ['a:1'], topic: t, acks: one", `kafka.acks: there is no "one"; want all`},
	{"format", "brokers: ['a:1'], topic: t, format: xml",
		`kafka.format: there is no "xml"; want json or raw`},
	{"compress", "brokers: ['a:1'], topic: t, compress: rar",
		`kafka.compress: there is no "rar"; want none, gzip, snappy, lz4 or zstd`},
	{"batch_bytes", "brokers: ['a:1'], topic: t, batch_bytes: 1B", "kafka.batch_bytes is 1B, want 1KiB to 512MiB"},
	{"broker", "brokers: [a], topic: t", `kafka.brokers: "a" is not HOST:PORT, such as kafka-1:9092`},
}

func TestRefusedSinkOptions(t *testing.T) {
	for _, c := range sinkRefusals {
		t.Run(c.name, func(t *testing.T) {
			text := "state: /state\npipelines: { p: { source: stdin, sink: { kafka: { " + c.options + " } } } }\n"
			_, err := engine.Parse([]byte(text), all.Components()...)
			first, _, _ := strings.Cut(fmt.Sprint(err), "\n")
			if _, message, _ := strings.Cut(first, ": "); message != c.want {
				t.Errorf("got  %s\nwant %s", message, c.want)
			}
		})
	}
}
