package nats_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/vfs/vfstest"
)

const durable = ", durable: d"

// TestSharedDelivers checks that every message arrives once and is acknowledged. A restart repeats
// nothing.
func TestSharedDelivers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	texts := c.publish("a", 3000)
	got := newArrivals()
	n := c.start(got, route{source: durable})
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	until(t, "acknowledgements", func() bool { return c.isDone("d") })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	texts = append(texts, c.publish("b", 100)...)
	c.start(got, route{source: durable})
	until(t, "the rest", func() bool { return got.distinct() == len(texts) && c.isDone("d") })
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages arrived again", n)
	}
}

// TestSharedNodes checks that no message is lost if one of three processes that share a consumer
// stops. The process gives its unsettled messages back to the server.
func TestSharedNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	var nodes []*node
	for range 3 {
		nodes = append(nodes,
			c.start(got, route{source: durable, pipeline: "batch: { records: 50, linger: 0s }"}))
	}
	var texts []string
	for round := range 10 {
		texts = append(texts, c.publish(fmt.Sprint(round), 500)...)
	}
	if err := nodes[0].stop(); err != nil {
		t.Fatal(err)
	}
	texts = append(texts, c.publish("last", 1000)...)
	until(t, "all messages", func() bool { return got.distinct() == len(texts) && c.isDone("d") })
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Logf("%d messages arrived again", n)
	}
}

// TestSharedHole checks a restart after one batch has failed and later batches were delivered. Only
// the failed batch is repeated. The record ids have the same prefix before and after the restart,
// although the partitions differ.
func TestSharedHole(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	got.refuses = func(text string) error {
		if text == "a-0" {
			return errors.New("not yet")
		}
		return nil
	}
	r := route{
		source:   durable,
		pipeline: "batch: { records: 10, linger: 0s }, flow: { window: fixed, size: 8 }",
		workers:  4,
	}
	texts := c.publish("a", 2000)
	n := c.start(got, r)
	until(t, "the others are acknowledged", func() bool { // the engine may have halved the batch
		n := got.distinct()
		return n >= 1990 && n < 2000 && c.consumer("d").NumAckPending == 2000-n
	})
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	got.set(func(a *arrivals) { a.refuses = nil })
	c.start(got, r)
	until(t, "the hole is filled",
		func() bool { return got.distinct() == len(texts) && c.isDone("d") })
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages arrived again", n)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	first, second := got.ids["a-0"], got.ids["a-10"]
	if strings.TrimSuffix(first, "@1") != strings.TrimSuffix(second, "@11") {
		t.Errorf("ids %q and %q do not begin in the same way", first, second)
	}
}

// TestSharedSlowSink checks that deliveries longer than ack_wait are not repeated. The source pulls
// no more messages than memory and max_ack_pending allow.
func TestSharedSlowSink(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	hold := make(chan struct{})
	got.hold = hold
	texts := c.publish("a", 500)
	n := c.start(got, route{
		source: durable + ", ack_wait: 2s, max_ack_pending: 200", pipeline: "batch: { records: 20, linger: 0s }",
	})
	until(t, "max_ack_pending", func() bool { return c.consumer("d").NumAckPending == 200 })
	ticks := 0
	until(t, "three times ack_wait", func() bool { ticks++; return ticks > 1200 })
	if info := c.consumer("d"); info.NumRedelivered > 0 || info.NumAckPending != 200 {
		t.Errorf("%d messages were delivered again, %d are pending", info.NumRedelivered,
			info.NumAckPending)
	}
	close(hold)
	until(t, "all messages", func() bool { return got.distinct() == len(texts) && c.isDone("d") })
	checkAll(t, got, texts)
	if got.repeats() > 0 || n.counter("redelivered") > 0 {
		t.Errorf("%d messages arrived again, %d were delivered again", got.repeats(),
			n.counter("redelivered"))
	}
}

// TestSharedMemory checks that the source bounds the bytes that it fetches ahead of a slow sink. A
// message that is larger than the remaining memory must be read nevertheless.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	hold := make(chan struct{})
	got.hold = hold
	for i := range 64 {
		text := fmt.Sprintf("%d-%s", i, strings.Repeat("x", 900<<10))
		if _, err := c.js.Publish(t.Context(), "orders.big", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(
		got,
		route{
			source:   durable + ", memory: 1MiB",
			pipeline: "batch: { records: 1, linger: 0s }, flow: { window: fixed, size: 2 }",
		},
	)
	most := 0
	ticks := 0
	until(t, "a second", func() bool {
		ticks++
		most = max(most, c.consumer("d").NumAckPending)
		return ticks > 100 && most > 0
	})
	if most > 12 {
		t.Errorf("%d messages of 900 KiB were fetched, with a memory of 1 MiB", most)
	}
	close(hold)
	until(t, "all messages", func() bool { return got.distinct() == 64 && c.isDone("d") })
}

// TestSharedServerRestarts checks that nothing is lost if the server restarts while messages are in
// flight.
func TestSharedServerRestarts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	n := c.start(got,
		route{source: durable + ", ack_wait: 1s", pipeline: "batch: { records: 50, linger: 0s }"})
	texts := c.publish("a", 3000)
	c.restartServer()
	c.waitForJetStream("up")
	texts = append(texts, "up")
	texts = append(texts, c.publish("b", 3000)...)
	until(t, "all messages", func() bool { return got.distinct() == len(texts) && c.isDone("d") })
	checkAll(t, got, texts)
	if err := n.engine.Status().Routes[0].Error; err != "" {
		t.Errorf("the route failed: %s", err)
	}
	t.Logf("%d messages arrived again", got.repeats())
}

// TestSharedOnce checks that a finite run ends after the last message.
func TestSharedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	for range 2 {
		got := newArrivals()
		texts := c.publish("a", 1200)
		if err := c.start(got, route{source: durable, once: true}).wait(); err != nil {
			t.Fatal(err)
		}
		checkAll(t, got, texts)
		until(t, "acknowledgements", func() bool { return c.isDone("d") })
	}
}

// TestSharedGone deletes the stream while it is read. The route must have an error that names the
// stream. After the stream is created again, its messages must be read.
func TestSharedGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	texts := c.publish("a", 10)
	n := c.start(got, route{source: durable})
	until(t, "all messages", func() bool { return got.distinct() == len(texts) && c.isDone("d") })
	if err := c.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	until(t, "an error",
		func() bool { return strings.Contains(n.engine.Status().Routes[0].Error, `stream "ORDERS"`) })
	if err := n.engine.Status().Routes[0].Error; !strings.Contains(err,
		"was deleted while it was read") &&
		!strings.Contains(err, "does not exist") {
		t.Errorf("the error is %q", err)
	}
	c.create(nil)
	texts = append(texts, c.publish("b", 10)...)
	until(t, "the messages of the new stream", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
}

// TestSharedRoutes checks that {route} names a different consumer for each route of all pipelines.
// Each route then gets all messages.
func TestSharedRoutes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	texts := c.publish("a", 10)
	const pipeline = `
  %s:
    source: { nats: { url: %q, stream: ORDERS, durable: "d-{route}" } }
    routes: { %s: { sink: memory } }
`
	got := newArrivals()
	n, err := c.run("state: /state\npipelines:"+fmt.Sprintf(pipeline, "a-b", c.url(), "c")+
		fmt.Sprintf(pipeline, "a", c.url(), "b-c"), got, route{once: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.wait(); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, texts)
	if n := got.repeats(); n != len(texts) {
		t.Errorf("%d messages arrived twice, want %d", n, len(texts))
	}
}

// TestSharedRecreated checks that a session that waits for its sink notices a recreated stream or
// consumer. It must not confuse new messages with settled messages of the same sequences.
func TestSharedRecreated(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"stream", "consumer"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sharedRecreated(t, kind == "stream")
		})
	}
}

func sharedRecreated(t *testing.T, isStream bool) {
	c := newCluster(t, nil)
	s := c.create(nil)
	got := newArrivals()
	settled := c.publish("a", 10)
	n := c.start(got, route{source: durable + ", memory: 1MiB, max_ack_pending: 100000",
		pipeline: "batch: { records: 5, linger: 0s }"})
	until(t, "all messages", func() bool {
		return got.distinct() == len(settled) && c.isDone("d")
	})
	hold := make(chan struct{})
	got.set(func(a *arrivals) { a.hold = hold })
	c.publish("b", 20_000)
	until(t, "a full memory", func() bool { return c.consumer("d").NumAckPending > 1500 })
	config := c.consumer("d").Config
	texts, times := settled, 2
	if isStream {
		if err := c.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
			t.Fatal(err)
		}
		s = c.create(nil)
		texts, times = c.publish("c", 10), 1
	} else if err := s.DeleteConsumer(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConsumer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	got.set(func(a *arrivals) { a.hold = nil })
	close(hold)
	until(t, "acknowledgements", func() bool { return c.isDone("d") })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if got.counts[text] < times {
			t.Errorf("%q has arrived %d times, want %d", text, got.counts[text], times)
		}
	}
}

// TestSharedPurge checks that messages purged before delivery are counted.
func TestSharedPurge(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	s := c.create(nil)
	got := newArrivals()
	hold := make(chan struct{})
	got.hold = hold
	n := c.start(
		got,
		route{
			source:   durable + ", max_ack_pending: 20",
			pipeline: "batch: { records: 5, linger: 0s }",
		},
	)
	c.publish("a", 100)
	until(t, "max_ack_pending", func() bool { return c.consumer("d").NumAckPending == 20 })
	until(t, "the gate is counted", func() bool { return n.counter("ack_pending_full") > 0 })
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(hold)
	texts := c.publish("b", 5)
	until(t, "the messages behind the purge",
		func() bool { return got.distinct() == 25 && c.isDone("d") })
	until(t, "the loss is counted", func() bool { return n.counter("lost_upstream") == 80 })
	for _, text := range texts {
		if got.counts[text] != 1 {
			t.Errorf("%q has arrived %d times", text, got.counts[text])
		}
	}
}

// TestSharedMeta checks the fields of `meta`.
func TestSharedMeta(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	for i, text := range []string{"one", "two"} {
		m := jetstreamMessage("orders.eu", text, map[string][]string{"K": {"v"}, "A": {"1", "2"}})
		if _, err := c.js.PublishMsg(t.Context(), m, jetstream.WithMsgID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, form := range []string{durable, ""} {
		files := vfstest.New()
		n, err := c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { nats: { url: %q, stream: ORDERS%s, meta: { subject: s, sequence: n, headers: h, timestamp: at } } }
    sink: { file: { path: /out, format: ndjson } }
`, c.url(), form), newArrivals(), route{once: true, state: files})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.wait(); err != nil {
			t.Fatal(err)
		}
		text := readFile(t, files, "/out")
		for _, want := range []string{
			`"message":"one","s":"orders.eu","n":1,"at":"20`, `"message":"two","s":"orders.eu","n":2`,
			`"h":{"A":["1","2"],"K":"v","Nats-Msg-Id":"0"}`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("form %q: the output lacks %s:\n%s", form, want, text)
			}
		}
	}
}

// TestSharedLedger checks that a sink with a ledger works with a shared consumer, with
// at-least-once delivery.
func TestSharedLedger(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	r := route{source: durable, store: newStore(), pipeline: "batch: { records: 50, linger: 0s }"}
	texts := c.publish("a", 1000)
	n := c.start(newArrivals(), r)
	until(t, "the first rows", func() bool { return len(r.store.Rows()) > 100 })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	c.start(newArrivals(), r)
	until(t, "all messages",
		func() bool { return len(distinct(r.store.Rows())) == len(texts) && c.isDone("d") })
	if m := r.store.Mistakes(); len(m) > 0 {
		t.Errorf("mistakes: %v", m)
	}
	t.Logf("%d rows of %d messages", len(r.store.Rows()), len(texts))
}

func distinct(rows []string) []string {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return slices.Compact(rows)
}
