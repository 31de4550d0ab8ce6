package nats_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// patience bounds every wait. A longer wait counts as hung.
const patience = 30 * time.Second

// cluster is a NATS server in this process with a client.
type cluster struct {
	t      *testing.T
	dir    string
	port   int
	set    func(*server.Options)
	server *server.Server
	conn   *natsgo.Conn
	js     jetstream.JetStream
}

// newCluster starts a server with JetStream. set may change its options, and may be nil.
func newCluster(t *testing.T, set func(*server.Options), login ...natsgo.Option) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), port: connectortest.FreePort(t), set: set}
	c.startServer()
	t.Cleanup(func() { c.server.Shutdown(); c.server.WaitForShutdown() })
	login = append(login, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(20*time.Millisecond))
	var err error
	if c.conn, err = natsgo.Connect(c.url(), login...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.conn.Close)
	if c.js, err = jetstream.New(c.conn); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) startServer() {
	c.t.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: c.port, JetStream: true, StoreDir: c.dir, NoLog: true, NoSigs: true,
	}
	if c.set != nil {
		c.set(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		c.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		c.t.Fatal("the server does not start")
	}
	c.server, c.port = s, o.Port
}

// restartServer stops the server and starts it again on the same port with the same data.
func (c *cluster) restartServer() {
	c.t.Helper()
	c.server.Shutdown()
	c.server.WaitForShutdown()
	c.startServer()
}

// waitForJetStream publishes a text until the server has stored it. The text is stored once.
func (c *cluster) waitForJetStream(text string) {
	c.t.Helper()
	until(c.t, "JetStream is up", func() bool {
		// A publication without a response may have been stored. The server drops repetitions with
		// the same id.
		_, err := c.js.Publish(c.t.Context(), "orders.new", []byte(text), jetstream.WithMsgID(text))
		return err == nil
	})
}

func (c *cluster) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", c.port) }

// create creates the stream ORDERS with the subjects orders.>. It tries again while the server
// still removes the files of a deleted stream of that name.
func (c *cluster) create(set func(*jetstream.StreamConfig)) jetstream.Stream {
	c.t.Helper()
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	if set != nil {
		set(&cfg)
	}
	create := func(ctx context.Context) (jetstream.Stream, error) {
		return c.js.CreateStream(ctx, cfg)
	}
	s, err := retry.Value(c.t.Context(), create, retry.Options{MaxElapsed: time.Minute})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// publish publishes n different messages and returns their texts.
func (c *cluster) publish(prefix string, n int) (texts []string) {
	c.t.Helper()
	var acks []jetstream.PubAckFuture
	for i := range n {
		text := fmt.Sprintf("%s-%d", prefix, i)
		ack, err := c.js.PublishAsync("orders.new", []byte(text),
			jetstream.WithStallWait(time.Minute))
		if err != nil {
			c.t.Fatal(err)
		}
		acks, texts = append(acks, ack), append(texts, text)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			c.t.Fatal(err)
		}
	}
	return texts
}

// consumer returns the state of a consumer. For a missing consumer, it returns a state with one
// pending message, so that isDone is false.
func (c *cluster) consumer(name string) *jetstream.ConsumerInfo {
	c.t.Helper()
	consumer, err := c.js.Consumer(c.t.Context(), "ORDERS", name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return &jetstream.ConsumerInfo{NumPending: 1}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return consumer.CachedInfo()
}

// isDone reports whether a consumer has no pending and no unacknowledged messages.
func (c *cluster) isDone(name string) bool {
	info := c.consumer(name)
	return info.NumPending == 0 && info.NumAckPending == 0
}

// arrivals collects the records that a sink has received, for all engines of a test.
type arrivals struct {
	mu      sync.Mutex // guards the fields below
	counts  map[string]int
	ids     map[string]string // ids of the records
	hold    chan struct{}     // if not nil, deliveries wait until it is closed
	refuses func(text string) error
}

func newArrivals() *arrivals {
	return &arrivals{counts: make(map[string]int), ids: make(map[string]string)}
}

func (a *arrivals) deliver(ctx context.Context, b *stream.Batch) error {
	a.mu.Lock()
	hold, refuses := a.hold, a.refuses
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	kept := b.AppendKept(nil)
	for _, i := range kept {
		if refuses != nil {
			if err := refuses(string(b.Text(i))); err != nil {
				return err
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range kept {
		a.counts[string(b.Text(i))]++
		a.ids[string(b.Text(i))] = string(b.AppendRecordID(nil, i))
	}
	return nil
}

func (a *arrivals) set(f func(*arrivals)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

// distinct returns the number of distinct records that have arrived.
func (a *arrivals) distinct() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.counts)
}

// repeats returns the number of arrivals beyond the first of each record.
func (a *arrivals) repeats() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.counts {
		n += c - 1
	}
	return n
}

// checkAll fails unless exactly the texts have arrived.
func checkAll(t *testing.T, got *arrivals, texts []string) {
	t.Helper()
	got.mu.Lock()
	defer got.mu.Unlock()
	known := make(map[string]bool)
	lost := 0
	for _, text := range texts {
		known[text] = true
		if got.counts[text] == 0 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d records are lost", lost, len(texts))
	}
	for text := range maps.Keys(got.counts) {
		if !known[text] {
			t.Errorf("%q has arrived, which nobody published", text)
		}
	}
}

// route is the configuration of a test.
type route struct {
	source, pipeline string            // options of the source, and keys of the pipeline
	timeout          string            // connect_timeout; empty: 3s
	store            *streamtest.Store // a sink with a ledger per partition; nil: none
	once             bool
	workers          int
	state            *vfstest.Mem // state of an earlier engine; nil: empty
	log              logLines     // gets the log, too; nil: none
}

// logLines receives the lines of a log. It drops lines while its buffer is full.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// node is a running engine.
type node struct {
	t      *testing.T
	engine *engine.Engine
	end    context.CancelFunc
	ended  chan error
	err    error
}

// start runs an engine with the durable consumer "d" that delivers to got.
func (c *cluster) start(got *arrivals, r route) *node {
	c.t.Helper()
	n, err := c.try(got, r)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) try(got *arrivals, r route) (*node, error) {
	to := "memory"
	if r.store != nil {
		to = "store"
	}
	return c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { nats: { url: %q, stream: ORDERS, connect_timeout: %s%s } }
    sink: %s
    checkpoint: { sync: 100ms }
    %s
`, c.url(), cmp.Or(r.timeout, "3s"), r.source, to, strings.ReplaceAll(r.pipeline, "}, ", "}\n    ")), got, r)
}

// run starts an engine with a configuration.
func (c *cluster) run(text string, got *arrivals, r route) (*node, error) {
	sink := memory.NewSink(memory.SinkOptions{Deliver: got.deliver, Workers: max(1, r.workers)})
	store := stream.Component{
		Role: stream.SinkRole, Name: "store",
		New: func(any, stream.Host) (any, error) { return streamtest.NewStoreSink(r.store), nil },
	}
	cfg, err := engine.Parse([]byte(text), append(all.Components(), sink.Component(), store)...)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(c.t.Output(), r.log),
		&slog.HandlerOptions{Level: slog.LevelWarn}))
	files := r.state
	if files == nil {
		files = vfstest.New()
	}
	e, err := engine.New(cfg, engine.Options{FS: files, Log: log, Once: r.once})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	n := &node{t: c.t, engine: e, end: cancel, ended: make(chan error, 1)}
	go func() { n.ended <- e.Run(ctx) }()
	c.t.Cleanup(func() { _ = n.stop() })
	return n, nil
}

// stop ends the engine without draining it, and returns its error.
func (n *node) stop() error {
	n.end()
	if err := n.wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// wait waits for the engine to end by itself.
func (n *node) wait() error {
	n.t.Helper()
	select {
	case err, ok := <-n.ended:
		if ok {
			n.err = err
			close(n.ended)
		}
	case <-time.After(patience):
		n.err = errors.New("the engine does not end")
		n.t.Error(n.err)
	}
	return n.err
}

// counter returns a counter of the route.
func (n *node) counter(name string) int64 {
	s := n.engine.Status()
	if len(s.Routes) == 0 {
		return 0
	}
	return s.Routes[0].SourceCounters[name] + s.Routes[0].Counters[name]
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func jetstreamMessage(subject, text string, header natsgo.Header) *natsgo.Msg {
	return &natsgo.Msg{Subject: subject, Data: []byte(text), Header: header}
}

func newStore() *streamtest.Store { return streamtest.NewStore() }

func readFile(t *testing.T, files *vfstest.Mem, path string) string {
	t.Helper()
	text, err := files.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
