package nats_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestLogDelivers checks that a stream is read by sequence, and that a restart resumes after the
// last message.
func TestLogDelivers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	r := route{state: vfstest.New()}
	got := newArrivals()
	var texts []string
	for round := range 3 {
		n := c.start(got, r)
		texts = append(texts, c.publish(fmt.Sprint(round), 2000)...)
		until(t, "all messages", func() bool { return got.distinct() == len(texts) })
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages arrived again", n)
	}
}

// TestLogHole checks that a restart delivers only the failed batch again.
func TestLogHole(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	r := route{
		state:    vfstest.New(),
		pipeline: "batch: { records: 10, linger: 0s }, flow: { window: fixed, size: 8 }", workers: 4,
	}
	got := newArrivals()
	got.refuses = func(text string) error {
		if text == "a-0" {
			return errors.New("not yet")
		}
		return nil
	}
	texts := c.publish("a", 2000)
	n := c.start(got, r)
	until(t, "the others", func() bool { return got.distinct() >= 1990 })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	got.set(func(a *arrivals) { a.refuses = nil })
	r.once = true
	if err := c.start(got, r).wait(); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages arrived again", n)
	}
}

// TestLogLostRequest checks that the source requests messages again if a request is lost. For
// example, it may reach a server that does not know the new consumer yet.
func TestLogLostRequest(t *testing.T) {
	t.Parallel()
	for name, once := range map[string]bool{"endless": false, "finite": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, nil)
			c.create(nil)
			texts := c.publish("a", 100)
			c.port = losesFirstPull(t, c.port)
			got := newArrivals()
			n := c.start(got, route{once: once})
			until(t, "all messages", func() bool { return got.distinct() == len(texts) })
			if once {
				if err := n.wait(); err != nil {
					t.Error(err)
				}
			}
			checkAll(t, got, texts)
		})
	}
}

// losesFirstPull starts a proxy of a server and returns its port. The proxy drops the first request
// for messages.
func losesFirstPull(t *testing.T, server int) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var lost atomic.Bool
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server))
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				defer client.Close()
				_, _ = io.Copy(client, upstream)
			}()
			go func() {
				defer upstream.Close()
				_ = forwardCommands(upstream, bufio.NewReader(client), &lost)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// forwardCommands forwards the commands of a client, except the first request for messages.
func forwardCommands(to io.Writer, from *bufio.Reader, lost *atomic.Bool) error {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		var payload []byte
		if len(words) > 1 && (words[0] == "PUB" || words[0] == "HPUB") {
			size, err := strconv.Atoi(words[len(words)-1])
			if err != nil {
				return err
			}
			payload = make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(from, payload); err != nil {
				return err
			}
			if strings.HasPrefix(words[1], "$JS.API.CONSUMER.MSG.NEXT.") && !lost.Swap(true) {
				continue
			}
		}
		if _, err := to.Write(append([]byte(line), payload...)); err != nil {
			return err
		}
	}
}

// TestLogSQL checks that every message is in the table once, although the engine is stopped
// repeatedly.
func TestLogSQL(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	path := filepath.Join(t.TempDir(), "out.db")
	db := connectortest.OpenSQLite(t, path)
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE orders (message TEXT)")
	config := fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { nats: { url: %q, stream: ORDERS } }
    sink: { sqlite: { path: %q, table: orders } }
    batch: { records: 50, linger: 0s }
`, c.url(), path)
	files := vfstest.New()
	var texts []string
	for round := range 4 {
		texts = append(texts, c.publish(fmt.Sprint(round), 1000)...)
		n, err := c.run(config, newArrivals(), route{state: files, once: round == 3})
		if err != nil {
			t.Fatal(err)
		}
		if round == 3 {
			if err := n.wait(); err != nil {
				t.Fatal(err)
			}
			break
		}
		until(t, "some rows",
			func() bool { return len(connectortest.Column(t, db, "SELECT message FROM orders")) > round*1000+100 })
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	rows := connectortest.Column(t, db, "SELECT message FROM orders")
	slices.Sort(rows)
	slices.Sort(texts)
	if !slices.Equal(rows, texts) {
		t.Errorf("the table has %d rows, want %d, each once", len(rows), len(texts))
	}
}

// TestLogSubject checks that only messages of a subject are read, and that a finite run ends after
// the last one.
func TestLogSubject(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	for i := range 30 {
		subject := []string{"orders.a", "orders.b"}[i%2]
		if _, err := c.js.Publish(t.Context(), subject, []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	got := newArrivals()
	if err := c.start(got, route{source: ", subject: orders.a", once: true}).wait(); err != nil {
		t.Fatal(err)
	}
	if got.distinct() != 15 || got.counts["28"] != 1 {
		t.Errorf("%d messages arrived: %v", got.distinct(), got.counts)
	}
}

// TestLogStart checks that `start: latest` begins after the last message. A restart keeps the
// position, even if the stream was empty at the first start.
func TestLogStart(t *testing.T) {
	t.Parallel()
	for _, old := range []int{10, 0} {
		c := newCluster(t, nil)
		c.create(nil)
		c.publish("old", old)
		r := route{source: ", start: latest", state: vfstest.New(), once: true}
		got := newArrivals()
		if err := c.start(got, r).wait(); err != nil {
			t.Fatal(err)
		}
		texts := c.publish("new", 10)
		if err := c.start(got, r).wait(); err != nil {
			t.Fatal(err)
		}
		checkAll(t, got, texts)
	}
}

// TestLogDeleted checks messages that are deleted before they are read. Depending on the option
// truncated, they stop the route or are counted.
func TestLogDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	s := c.create(nil)
	c.publish("a", 10)
	files := vfstest.New()
	got := newArrivals()
	if err := c.start(got, route{state: files, once: true}).wait(); err != nil {
		t.Fatal(err)
	}
	c.publish("lost", 10)
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.publish("b", 10)
	err := c.start(got, route{state: files, once: true}).wait()
	const want = `10 sequences from 11 on were deleted, by a purge or the limits of the stream, before they were read; ` +
		`set truncated: earliest to resume at 21`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the run ended with %v, want %s", err, want)
	}
	n := c.start(got, route{source: ", truncated: earliest", state: files})
	until(t, "the rest", func() bool { return got.distinct() == 20 })
	if lost := n.counter("lost_upstream"); lost != 10 {
		t.Errorf("%d messages are counted as lost, want 10", lost)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages arrived again", n)
	}
}

// TestLogDeletedBehindGap checks that a purge is noticed although it follows soon after a gap in
// the sequences. Messages of other subjects cause such gaps, so the reader does not check each gap.
func TestLogDeletedBehindGap(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	s := c.create(nil)
	c.publish("first", 1)
	if _, err := c.js.Publish(t.Context(), "orders.other", []byte("a gap")); err != nil {
		t.Fatal(err)
	}
	const many = 30_000 // more than the reader fetches ahead
	c.publish("a", many)
	got := newArrivals()
	got.hold = make(chan struct{})
	n := c.start(got, route{source: ", truncated: earliest, subject: orders.new"})
	until(t, "a batch behind the gap", func() bool {
		return n.engine.Status().Routes[0].ReadRecords > 1
	})
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.publish("b", 10)
	close(got.hold)
	until(t, "the messages after the purge", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return got.counts["b-9"] > 0
	})
	if lost := n.counter("lost_upstream"); lost == 0 || got.distinct()+int(lost) != 1+many+10 {
		t.Errorf("%d messages arrived and %d are counted as lost, want %d together",
			got.distinct(), lost, 1+many+10)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestLogCreatedAgain checks that a recreated stream of the same name is read from its start.
func TestLogCreatedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	texts := c.publish("a", 10)
	got := newArrivals()
	r := route{state: vfstest.New(), once: true}
	if err := c.start(got, r).wait(); err != nil {
		t.Fatal(err)
	}
	if err := c.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	c.create(nil)
	texts = append(texts, c.publish("b", 10)...)
	if err := c.start(got, r).wait(); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, texts)
	if n := got.repeats(); n > 0 {
		t.Errorf("%d messages arrived again", n)
	}
}

// TestLogGone deletes the stream while it is read. The route must have an error that names the
// stream. After the stream is created again, its messages must be read.
func TestLogGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	texts := c.publish("a", 10)
	got := newArrivals()
	log := make(logLines, 100)
	n := c.start(got, route{log: log})
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	if err := c.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	until(t, "an error", func() bool { return n.engine.Status().Routes[0].Error != "" })
	// a restart soon replaces the first error in the status
	until(t, "the first error in the log", func() bool {
		select {
		case line := <-log:
			return strings.Contains(line, "ORDERS") &&
				strings.Contains(line, "was deleted while it was read")
		default:
			return false
		}
	})
	c.create(nil)
	texts = append(texts, c.publish("b", 10)...)
	until(t, "the messages of the new stream", func() bool { return got.distinct() == len(texts) })
}

// TestLogRecreated checks that a stream that is recreated while it is read is read from its start,
// even if it soon has more messages than before.
func TestLogRecreated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	texts := c.publish("a", 10)
	c.start(got, route{})
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	if err := c.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	c.create(nil)
	texts = append(texts, c.publish("c", 20)...)
	until(t, "the last message", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return got.counts["c-19"] > 0
	})
	checkAll(t, got, texts)
}

// TestLogServerRestarts checks that a server restart loses and repeats nothing.
func TestLogServerRestarts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	got := newArrivals()
	n := c.start(got, route{pipeline: "batch: { records: 50, linger: 0s }"})
	texts := c.publish("a", 3000)
	c.restartServer()
	c.waitForJetStream("up")
	texts = append(append(texts, "up"), c.publish("b", 3000)...)
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
	if got.repeats() > 0 || n.engine.Status().Routes[0].Error != "" {
		t.Errorf("%d messages arrived again; the route's error: %s", got.repeats(),
			n.engine.Status().Routes[0].Error)
	}
}

// TestLogWaits checks that batches that wait for a retry are read again by their sequences. Although
// the stream has allow_direct, they must be read from its leader, because a replica may not have
// them yet.
func TestLogWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	s := c.create(func(o *jetstream.StreamConfig) { o.AllowDirect = true })
	direct, err := c.conn.SubscribeSync("$JS.API.DIRECT.GET.>")
	if err != nil {
		t.Fatal(err)
	}
	texts := c.publish("a", 100)
	if err := s.DeleteMsg(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	texts = slices.Delete(texts, 49, 50)
	got := newArrivals()
	got.refuses = func(string) error { return errors.New("down") }
	c.start(
		got,
		route{
			pipeline: "batch: { records: 10, linger: 0s }, retry: { backoff: fixed delay=3s }, " +
				"flow: { window: fixed, size: 100 }",
		},
	)
	ticks := 0
	until(t, "the batches wait", func() bool { ticks++; return ticks > 300 })
	got.set(func(a *arrivals) { a.refuses = nil })
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
	if n, _, err := direct.Pending(); n > 0 || err != nil {
		t.Errorf("%d requests to replicas, %v", n, err)
	}
}

// TestLogRetention checks that a stream that deletes acknowledged messages cannot be read by
// sequence.
func TestLogRetention(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(func(o *jetstream.StreamConfig) { o.Retention = jetstream.WorkQueuePolicy })
	err := c.start(newArrivals(), route{once: true}).wait()
	if err == nil ||
		!strings.Contains(err.Error(),
			"deletes messages that its consumers have acknowledged: set durable") {
		t.Errorf("the run ended with %v", err)
	}
}

// TestLogRareSubject checks a source with the option subject, while the stream deletes old messages
// of other subjects. No message of the source is lost, so the source must report no loss, neither
// while it runs nor after a restart.
func TestLogRareSubject(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(func(o *jetstream.StreamConfig) { o.MaxMsgs = 100 })
	r := route{source: ", subject: orders.new", state: vfstest.New()}
	once := r
	once.once = true
	got := newArrivals()
	texts := c.publish("a", 1)
	publishOthers := func() {
		for range 90 {
			if _, err := c.js.Publish(t.Context(), "orders.other", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		if err := c.start(got, once).wait(); err != nil {
			t.Fatal(err)
		}
		publishOthers()
	}
	n := c.start(got, r)
	lookups, err := c.conn.SubscribeSync("$JS.API.STREAM.MSG.GET.ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the reader looks up the end of the stream, and saves its position then
		if _, err := lookups.NextMsg(patience); err != nil {
			t.Fatal(err)
		}
	}
	publishOthers()
	texts = append(texts, c.publish("b", 1)...)
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	if err := n.stop(); err != nil || n.engine.Status().Routes[0].Starts > 1 {
		t.Errorf("the run ended with %v after %d starts", err, n.engine.Status().Routes[0].Starts)
	}
	checkAll(t, got, texts)
}
