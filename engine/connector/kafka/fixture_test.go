package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// patience bounds every wait. A longer wait counts as hung.
const patience = 2 * time.Minute

// cluster is a Kafka cluster in this process, or a real broker, with a client.
type cluster struct {
	*kfake.Cluster // nil: a real broker
	t              *testing.T
	topic          string
	group          string
	client         *kgo.Client
	admin          *kadm.Client
}

func newCluster(t *testing.T, o ...kfake.Opt) *cluster {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1),
		kfake.GroupMinSessionTimeout(time.Millisecond)}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return withClient(t, &cluster{Cluster: fake, t: t, topic: "orders", group: "g"}, fake.ListenAddrs())
}

func withClient(t *testing.T, c *cluster, brokers []string, o ...kgo.Opt) *cluster {
	t.Helper()
	client, err := kgo.NewClient(append(o, kgo.SeedBrokers(brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c.client, c.admin = client, kadm.NewClient(client)
	return c
}

// topics returns the options of the source for the topic.
func (c *cluster) topics() string { return ", topics: [" + c.topic + "]" }

// brokers returns the seeds as a list in YAML.
func (c *cluster) brokers() string { return "[" + strings.Join(c.seeds(), ", ") + "]" }

func (c *cluster) seeds() []string { return c.client.OptValue(kgo.SeedBrokers).([]string) }

// produce appends n records with the texts PREFIX-PARTITION-NUMBER to each partition of a topic.
func (c *cluster) produce(topic, prefix string, partitions, n int) (texts []string) {
	c.t.Helper()
	var records []*kgo.Record
	for p := range partitions {
		for i := range n {
			text := fmt.Sprintf("%s-%d-%05d", prefix, p, i)
			texts = append(texts, text)
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Value: []byte(text)})
		}
	}
	c.send(records...)
	return texts
}

func (c *cluster) send(records ...*kgo.Record) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

// committed returns the group's offset and metadata of a partition, or -1 if there is none.
func (c *cluster) committed(group, topic string, partition int32) (int64, string) {
	c.t.Helper()
	var all kadm.OffsetResponses
	until(c.t, "the group's offsets", func() bool { // the broker may be starting
		var err error
		all, err = c.admin.FetchOffsets(c.t.Context(), group)
		return err == nil
	})
	o, ok := all.Lookup(topic, partition)
	if !ok {
		return -1, ""
	}
	return o.At, o.Metadata
}

// node is one engine with a source that is a member of the group.
type node struct {
	t      *testing.T
	engine *engine.Engine
	end    context.CancelFunc
	ended  chan error
	err    error
	got    *arrivals
}

// arrivals collects the records that a sink has accepted, over several engines.
type arrivals struct {
	mu      sync.Mutex // guards the fields below
	counts  map[string]int
	begun   map[string]bool // texts whose delivery has begun
	refuses func(text string) error
	hold    chan struct{} // if not nil, accepted batches wait until it is closed
}

func newArrivals() *arrivals {
	return &arrivals{counts: make(map[string]int), begun: make(map[string]bool)}
}

func (a *arrivals) deliver(ctx context.Context, b *stream.Batch) error {
	a.mu.Lock()
	hold, refuses := a.hold, a.refuses
	for _, i := range b.AppendKept(nil) {
		a.begun[string(b.Text(i))] = true
	}
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, i := range b.AppendKept(nil) {
		if refuses != nil {
			if err := refuses(string(b.Text(i))); err != nil {
				return err
			}
		}
	}
	for _, i := range b.AppendKept(nil) {
		a.add(string(b.Text(i)))
	}
	return nil
}

func (a *arrivals) add(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[text]++
}

func (a *arrivals) set(refuses func(string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuses = refuses
}

// distinct returns the number of distinct records that have arrived.
func (a *arrivals) distinct() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.counts)
}

// await waits for n distinct records. It fails if no further one arrives for patience.
func (a *arrivals) await(t *testing.T, what string, n int) {
	t.Helper()
	for got := a.distinct(); got < n; {
		last := got
		until(t, what, func() bool { got = a.distinct(); return got > last })
	}
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

// missing returns the texts that have not arrived.
func (a *arrivals) missing(texts []string) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range texts {
		if a.counts[text] == 0 {
			out = append(out, text)
		}
	}
	return out
}

// twice returns the texts that have arrived more than once, in order.
func (a *arrivals) twice() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for text, n := range a.counts {
		if n > 1 {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// route is the configuration of a test: options of the source and keys of the pipeline.
type route struct {
	source, pipeline string
	http             string            // URL for the sink http; empty: the test's sink
	store            *streamtest.Store // a sink with a ledger per partition; nil: none
	once             bool
	workers          int
}

// start runs an engine that delivers to got.
func (c *cluster) start(got *arrivals, r route) *node {
	c.t.Helper()
	n, err := c.try(got, r)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) try(got *arrivals, r route) (*node, error) {
	return c.tryAt(got, c.brokers(), r)
}

// tryAt starts an engine that uses the given brokers. Its session is long: on a busy machine, a
// member with a short session may lose its partitions, and the next owner may repeat records.
func (c *cluster) tryAt(got *arrivals, brokers string, r route) (*node, error) {
	to := "memory"
	if r.store != nil {
		to = "store"
	}
	if r.http != "" {
		to = "{ http: { body: raw, endpoints: [" + r.http + "] } }"
	}
	return c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { kafka: { brokers: %s, group: %s, session_timeout: 30s%s } }
    sink: %s
    checkpoint: { sync: 100ms }
    %s
`, brokers, c.group, r.source, to, strings.ReplaceAll(r.pipeline, "}, ", "}\n    ")), got, r)
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
	log := slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	e, err := engine.New(cfg, engine.Options{FS: vfstest.New(), Log: log, Once: r.once})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	n := &node{t: c.t, engine: e, end: cancel, ended: make(chan error, 1), got: got}
	go func() { n.ended <- e.Run(ctx) }()
	c.t.Cleanup(func() { n.stop() })
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

// counted waits until the route's counters show the given number of delivered and dead-lettered
// records. The counters increase a little later than the records are committed.
func (n *node) counted(records int64) {
	n.t.Helper()
	until(n.t, "the counters", func() bool {
		s := n.engine.Status().Routes[0]
		return s.Delivered+s.Dead >= records
	})
}

// counter returns a counter of the route.
func (n *node) counter(name string) int64 {
	s := n.engine.Status()
	if len(s.Routes) == 0 {
		return 0
	}
	return s.Routes[0].SourceCounters[name] + s.Routes[0].Counters[name]
}

// loseSession answers heartbeats like a broker that has expelled the member, until one of the nodes
// has lost partitions. loseSession may have to do so several times, because the answer has no
// effect if the member has no partitions at the moment.
func (c *cluster) loseSession(nodes ...*node) {
	c.t.Helper()
	before := lostSessions(nodes)
	var over atomic.Bool
	c.ControlKey(int16(kmsg.Heartbeat), func(q kmsg.Request) (kmsg.Response, error, bool) {
		if over.Load() {
			c.DropControl()
			return nil, nil, false
		}
		c.KeepControl()
		res := q.ResponseKind().(*kmsg.HeartbeatResponse)
		res.ErrorCode = kerr.UnknownMemberID.Code
		return res, nil, true
	})
	until(c.t, "a lost session", func() bool { return lostSessions(nodes) > before })
	over.Store(true)
}

// lostSessions returns how often the nodes have lost partitions.
func lostSessions(nodes []*node) (n int64) {
	for _, one := range nodes {
		n += one.counter("sessions_lost")
	}
	return n
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

// checkAll fails unless exactly the texts have arrived.
func checkAll(t *testing.T, got *arrivals, texts []string) {
	t.Helper()
	if lost := got.missing(texts); len(lost) > 0 {
		t.Errorf("%d of %d records are lost, the first is %s", len(lost), len(texts), lost[0])
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	known := make(map[string]bool)
	for _, text := range texts {
		known[text] = true
	}
	for text := range maps.Keys(got.counts) {
		if !known[text] {
			t.Errorf("%q has arrived, which nobody produced", text)
		}
	}
}
