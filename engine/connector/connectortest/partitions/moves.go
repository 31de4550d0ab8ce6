package partitions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// Moves checks that each record arrives exactly once while partitions move between engines. Two or
// three engines read from one broker and write to one table. Moves starts and stops engines, so
// that the broker moves partitions between them. It ends sessions of engines with the broker, and
// reports some stored batches to their engine as failed, as if a response was lost. It also
// simulates kills: a killed engine is cut off from the broker, but its goroutines keep running.
func Moves(t *testing.T, r Receiver, seed uint64) {
	g := &group{t: t, r: r, broker: streamtest.NewBroker(4), rnd: dice(seed)}
	defer g.close()
	g.start("a", vfstest.New())
	g.start("b", vfstest.New())
	var written []string
	for round := range 24 {
		for partition := range 4 {
			for range g.rnd(25) {
				text := fmt.Sprintf("record %d of %d", len(written), partition)
				written = append(written, text)
				g.broker.Produce(partition, text)
			}
		}
		g.act(round)
		_ = retry.Sleep(t.Context(), time.Duration(10+g.rnd(40))*time.Millisecond)
	}
	g.calm.Store(true)
	deadline := time.Now().Add(patience)
	for g.broker.Lag() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v: %d positions are not committed", patience, g.broker.Lag())
		}
		_ = retry.Sleep(t.Context(), 5*time.Millisecond)
	}
	rows := r.Received(t)
	slices.Sort(rows)
	slices.Sort(written)
	if !slices.Equal(rows, written) {
		t.Errorf("the table has %d rows, %d of them distinct; want %d, each once", len(rows),
			len(slices.Compact(slices.Clone(rows))), len(written))
	}
	if m := g.broker.Mistakes(); len(m) > 0 {
		t.Errorf("mistakes: %v", m)
	}
	t.Logf("%d records, %d engines, %d assignments", len(written), g.starts, g.broker.Moves())
}

// group is a broker with engines that start and end.
type group struct {
	t      *testing.T
	r      Receiver
	broker *streamtest.Broker
	rnd    func(n int) int
	calm   atomic.Bool // the sink no longer fails deliveries
	live   []*member
	aside  []*member // killed; their goroutines keep running
	starts int
}

// member is one process of an engine.
type member struct {
	name  string
	fs    *vfstest.Mem
	end   context.CancelFunc
	ended chan error
}

const config = `
state: /state
pipelines:
  p:
    source: broker
    sink: store
    checkpoint: { sync: 50ms }
`

func (g *group) start(name string, fs *vfstest.Mem) {
	g.t.Helper()
	source := stream.Component{Role: stream.SourceRole, Name: "broker",
		New: func(_ any, h stream.Host) (any, error) {
			s := streamtest.NewBrokerSource(g.broker, h, name)
			s.BatchRecords = 7
			return s, nil
		}}
	sink := stream.Component{Role: stream.SinkRole, Name: "store",
		New: func(_ any, h stream.Host) (any, error) {
			s, err := g.r.New(h)
			if err != nil {
				return nil, err
			}
			return &unruly{Sink: s, Encoder: s.(stream.Encoder), g: g}, nil
		}}
	c, err := engine.Parse([]byte(config), source, sink)
	if err != nil {
		g.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	e, err := engine.New(c, engine.Options{FS: fs, Log: log})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.t.Context()))
	m := &member{name: name, fs: fs, end: cancel, ended: make(chan error, 1)}
	go func() { m.ended <- e.Run(ctx) }()
	g.live = append(g.live, m)
	g.starts++
}

// act causes one event at a random engine. The kind of event depends on round.
func (g *group) act(round int) {
	n := g.rnd(len(g.live))
	m := g.live[n]
	switch round % 4 {
	case 0:
		g.broker.Expire(m.name)
	case 1: // killed
		g.broker.Cut(m.name)
		g.live = slices.Delete(g.live, n, n+1)
		g.aside = append(g.aside, m)
		clone := m.fs.Crash(vfstest.DataAll, vfstest.NamesAll, uint64(round))
		g.start(fmt.Sprintf("m%d", g.starts), clone)
	case 2:
		if len(g.live) < 3 {
			g.start(fmt.Sprintf("m%d", g.starts), vfstest.New())
		}
	case 3:
		if len(g.live) > 2 {
			g.live = slices.Delete(g.live, n, n+1)
			g.stop(m)
		}
	}
}

func (g *group) stop(m *member) {
	m.end()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-m.ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			g.t.Errorf("engine %s: %v", m.name, err)
		}
	case <-timer.C:
		g.t.Errorf("engine %s does not end", m.name)
	}
}

func (g *group) close() {
	for _, m := range append(g.live, g.aside...) {
		g.stop(m)
	}
}

// dice returns a random number generator that is safe for concurrent use.
func dice(seed uint64) func(n int) int {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
}

// unruly is a sink that delays its transactions. After the commit, it reports some of them as
// failed.
type unruly struct {
	Sink
	stream.Encoder
	g *group
}

// Open implements stream.Sink.
func (u *unruly) Open(ctx context.Context, o stream.SinkOptions) error {
	lanes := o.Lanes
	o.Lanes = func(all []stream.Lane) {
		all = slices.Clone(all)
		for i := range all {
			all[i].Worker = &worker{Worker: all[i].Worker, g: u.g}
		}
		lanes(all)
	}
	return u.Sink.Open(ctx, o)
}

type worker struct {
	stream.Worker
	g *group
}

// Deliver implements stream.Worker.
func (w *worker) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	if w.g.calm.Load() {
		return w.Worker.Deliver(ctx, a)
	}
	_ = retry.Sleep(context.WithoutCancel(ctx), time.Duration(w.g.rnd(8))*time.Millisecond)
	report, err := w.Worker.Deliver(ctx, a)
	if err == nil && w.g.rnd(10) == 0 {
		err = errors.New("the response was lost after the commit")
	}
	return report, err
}
