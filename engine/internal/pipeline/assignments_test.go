package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// group is a broker, with the engines that join and leave its consumer group.
type group struct {
	t       *testing.T
	broker  *streamtest.Broker
	sink    func(*node) any                                          // makes the sink of a node
	wrap    func(*node, stream.AssignedSource) stream.AssignedSource // nil: none
	route   config.Route
	limit   int // of the metadata of commits
	cut     int // records of a batch
	live    []*node
	aside   []*node // killed nodes; their goroutines continue
	written []string
	next    int
	starts  int
}

// node is one engine from its start to its drain or kill.
type node struct {
	name   string
	fs     *vfstest.Mem
	engine *Engine
	end    context.CancelCauseFunc
	ended  chan error
	hung   chan struct{} // if open, deliveries wait until it is closed, ignoring their contexts

	mu sync.Mutex // guards hung
}

var errKilled = errors.New("the test ends an engine that was killed")

func newGroup(t *testing.T, partitions int, sink func(*node) any) *group {
	g := &group{t: t, broker: streamtest.NewBroker(partitions), sink: sink, cut: 5}
	g.route = config.DefaultRoute("r0", "/state")
	g.route.Checkpoint.Sync = time.Second
	return g
}

// start starts an engine as the member with the given name. fs has the state of an earlier engine,
// if there was one.
func (g *group) start(name string, fs *vfstest.Mem) *node {
	n := &node{name: name, fs: fs, ended: make(chan error, 1)}
	source := config.Use{Component: stream.Component{
		Role: stream.SourceRole, Name: "broker",
		New: func(_ any, h stream.Host) (any, error) {
			s := streamtest.NewBrokerSource(g.broker, h, name)
			s.BatchRecords, s.MetadataLimit = g.cut, g.limit
			if g.wrap != nil {
				return g.wrap(n, s), nil
			}
			return s, nil
		},
	}}
	r := g.route
	r.Sink = config.Use{Component: stream.Component{
		Role: stream.SinkRole, Name: "store", New: func(any, stream.Host) (any, error) { return g.sink(n), nil },
	}}
	n.engine = jobOf(g.t, fs, Options{Boot: "boot"}, source, r)
	ctx, end := context.WithCancelCause(context.WithoutCancel(g.t.Context()))
	n.end = end
	go func() { n.ended <- n.engine.Run(ctx) }()
	g.live = append(g.live, n)
	g.starts++
	return n
}

// hang blocks the deliveries of a node until the test calls wake, as if the node's process were
// suspended.
func (n *node) hang() (wake func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	hung := make(chan struct{})
	n.hung = hung
	return sync.OnceFunc(func() { close(hung) })
}

// wait is called by sinks before a transaction commits.
func (n *node) wait() {
	n.mu.Lock()
	hung := n.hung
	n.mu.Unlock()
	if hung != nil {
		<-hung
	}
}

// kill disconnects a node without stopping its goroutines. It then starts another node with a copy
// of the files, in a state that a crash could leave.
func (g *group) kill(n *node, seed uint64) *node {
	g.broker.Cut(n.name)
	clone := n.fs.Crash(vfstest.DataAll, vfstest.NamesAll, seed)
	g.live = slices.DeleteFunc(g.live, func(m *node) bool { return m == n })
	g.aside = append(g.aside, n)
	return g.start(fmt.Sprintf("%s'", n.name), clone)
}

// leave drains a node.
func (g *group) leave(n *node) {
	g.live = slices.DeleteFunc(g.live, func(m *node) bool { return m == n })
	n.engine.Drain()
	if err := <-n.ended; err != nil {
		g.t.Errorf("%s: Run = %v after Drain", n.name, err)
	}
}

func (g *group) produce(partition int) {
	g.next++
	text := fmt.Sprintf("record %d", g.next)
	g.written = append(g.written, text)
	g.broker.Produce(partition, text)
}

// until waits for a condition, in virtual time.
func (g *group) until(what string, done func() bool) {
	g.t.Helper()
	for range 6000 {
		if done() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, n := range g.live {
		r := n.engine.statusWithoutTree().Routes[0]
		g.t.Logf("%s: %s, %d read, %d delivered, %d in flight, %d waiting, %v, %v",
			n.name, r.Health, r.ReadRecords, r.Delivered, r.InFlight, r.Waiting, r.Error, r.Counters)
	}
	g.t.Errorf("not within ten minutes: %s; %d offsets are not committed, owners %v", what,
		g.broker.Lag(), g.broker.Owners())
}

// close drains the running nodes and stops the killed ones.
func (g *group) close() {
	for _, n := range slices.Clone(g.live) {
		conserved(g.t, n.engine.statusWithoutTree().Routes[0])
		g.leave(n)
	}
	for _, n := range g.aside {
		n.end(errKilled)
		<-n.ended
	}
	if m := g.broker.Mistakes(); len(m) > 0 {
		g.t.Errorf("the source's mistakes: %v", m)
	}
}

// counts fails the test for each produced record that is not in rows, and if rows has records that
// were not produced. It returns the number of repeated records.
func (g *group) counts(rows []string) (repeated int) {
	g.t.Helper()
	seen := make(map[string]int)
	for _, r := range rows {
		if seen[r]++; seen[r] > 1 {
			repeated++
		}
	}
	for _, w := range g.written {
		if seen[w] == 0 {
			g.t.Errorf("%q is lost", w)
		}
	}
	if len(seen) > len(g.written) {
		g.t.Errorf("%d different records arrived of %d", len(seen), len(g.written))
	}
	return repeated
}

// flakyOf returns a hook that makes a sink's transactions slow and occasionally fail.
func flakyOf(n *node, rnd func(int) int, calm func() bool) func(context.Context,
	stream.Attempt) error {
	return func(ctx context.Context, _ stream.Attempt) error {
		if calm() {
			return nil
		}
		select {
		case <-time.After(time.Duration(rnd(400)) * time.Millisecond):
		case <-ctx.Done():
		}
		n.wait()
		if rnd(10) == 0 {
			return errors.New("connection reset")
		}
		return nil // even if ctx is done: the commit was already sent
	}
}

// newRand returns a function that draws a number from 0 to n-1. Goroutines may share the function.
func newRand(seed uint64) func(int) int {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 17))
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
}

// TestPartitionsMove runs two to four engines in one group. It covers rebalances, expired sessions,
// suspended processes, and killed processes with goroutines that continue. If the sink has a
// ledger, each record arrives exactly once, otherwise at least once.
func TestPartitionsMove(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 2
	}
	for _, ledger := range []bool{true, false} {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprintf("ledger %v, seed %d", ledger, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { partitionsMove(t, ledger, seed) })
			})
		}
	}
}

func partitionsMove(t *testing.T, ledger bool, seed uint64) {
	rnd := newRand(seed)
	var calm atomic.Bool
	store := streamtest.NewStore()
	plain := &fakeSink{}
	g := newGroup(t, 5, func(n *node) any {
		if !ledger {
			hook := flakyOf(n, rnd, calm.Load)
			return &sharedSink{fakeSink: plain, before: hook}
		}
		s := streamtest.NewStoreSink(store)
		s.Workers = 2
		s.Before, s.After = flakyOf(n, rnd, calm.Load), lostAnswers(rnd, calm.Load)
		s.BeforeTake = func(context.Context) error {
			if !calm.Load() && rnd(6) == 0 {
				return errors.New("too many connections")
			}
			return nil
		}
		return s
	})
	g.start("a", vfstest.New())
	g.start("b", vfstest.New())
	var wakes []func()
	for range 150 {
		for range rnd(12) {
			g.produce(rnd(5))
		}
		if rnd(8) == 0 {
			g.broker.ProduceGap(rnd(5))
		}
		wakes = append(wakes, g.act(rnd)...)
		for len(wakes) > 0 && rnd(3) == 0 {
			wakes[0]()
			wakes = wakes[1:]
		}
		time.Sleep(time.Duration(50+rnd(800)) * time.Millisecond)
	}
	calm.Store(true)
	for _, wake := range wakes {
		wake()
	}
	g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
	g.close()
	rows := plain.got
	if ledger {
		rows = store.Rows()
	}
	repeated := g.counts(rows)
	if m := store.Mistakes(); len(m) > 0 || ledger && repeated > 0 {
		t.Errorf("%d records are there twice; the store says %v", repeated, m)
	}
	t.Logf("%d records, %d lives, %d assignments, %d fenced, %d batches found there, %d records repeated",
		len(g.written), g.starts, g.broker.Moves(), store.Fenced(), store.Repeated(), repeated)
}

// act performs one random action on the group.
func (g *group) act(rnd func(int) int) (wakes []func()) {
	n := g.live[rnd(len(g.live))]
	switch rnd(14) {
	case 0:
		g.broker.Expire(n.name)
	case 1: // killed at once
		g.kill(n, uint64(rnd(1000)))
	case 2: // suspended with open transactions, and considered dead
		wakes = append(wakes, n.hang())
		g.kill(n, uint64(rnd(1000)))
	case 3: // suspended, and the session ends
		wakes = append(wakes, n.hang())
		g.broker.Expire(n.name)
	case 4:
		if len(g.live) < 4 {
			g.start(fmt.Sprintf("n%d", g.starts), vfstest.New())
		}
	case 5:
		if n.hung == nil && len(g.live) > 2 {
			g.leave(n)
		}
	}
	return wakes
}

// lostAnswers returns a hook that occasionally loses the response to a transaction.
func lostAnswers(rnd func(int) int, calm func() bool) func(context.Context, stream.Attempt) error {
	return func(context.Context, stream.Attempt) error {
		if !calm() && rnd(10) == 0 {
			return errors.New("connection lost after the commit")
		}
		return nil
	}
}

// sharedSink is a receiver that many engines share, without a ledger.
type sharedSink struct {
	*fakeSink
	before func(context.Context, stream.Attempt) error
}

func (s *sharedSink) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: "w1", Worker: s}, {Name: "w2", Worker: s}})
	return nil
}

func (s *sharedSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	if err := s.before(ctx, a); err != nil {
		return stream.Report{}, err
	}
	return s.fakeSink.Deliver(ctx, a)
}

// TestOrderlyRebalance checks that nothing is delivered twice if members join and leave in an
// orderly way, even without a ledger. Before a partition moves, the workers finish its batches, and
// its progress is committed at the broker.
func TestOrderlyRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := newRand(3)
		plain := &fakeSink{}
		g := newGroup(t, 4, func(*node) any {
			return &sharedSink{fakeSink: plain, before: func(context.Context, stream.Attempt) error {
				time.Sleep(time.Duration(rnd(900)) * time.Millisecond)
				return nil
			}}
		})
		// Without timeouts, only moves of partitions cause redeliveries.
		g.route.Flow.Window, g.route.Flow.Size, g.route.Flow.Timeout = "fixed", 8, "1m"
		g.start("a", vfstest.New())
		for round := range 40 {
			for range 30 {
				g.produce(rnd(4))
			}
			time.Sleep(time.Duration(rnd(3000)) * time.Millisecond)
			if len(g.live) < 3 && round%2 == 0 {
				g.start(fmt.Sprintf("n%d", round), vfstest.New())
			} else if len(g.live) > 1 {
				g.leave(g.live[rnd(len(g.live))])
			}
		}
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		g.close()
		if n := g.counts(plain.got); n > 0 || g.broker.Moves() < 60 {
			t.Errorf("%d records were repeated in %d moves", n, g.broker.Moves())
		}
	})
}

// TestRangesSurvive checks a partition in which every fourth batch is stuck. The batches between
// the stuck ones must be delivered, and after a kill only the stuck ones are sent again. There is
// one exception: if the broker cannot store all settled ranges, at most the replay bound is sent
// again.
func TestRangesSurvive(t *testing.T) {
	const replay = 400
	for _, c := range []struct {
		name         string
		limit        int
		window, most int // batches that are delivered around the stuck ones; records that may be repeated
	}{{"all fit", 0, 100, 0}, {"one fits", 20, 100, replay / 10}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plain, first := &fakeSink{}, true
				g := newGroup(t, 1, func(*node) any {
					stuck := first
					first = false
					return &sharedSink{fakeSink: plain, before: func(ctx context.Context, a stream.Attempt) error {
						if from := a.Value.Spans[0].From.Num; stuck && from%20 == 0 { // each fourth batch
							<-ctx.Done()
							return context.Cause(ctx)
						}
						return nil
					}}
				})
				g.limit = c.limit
				g.route.Checkpoint.Replay = replay
				g.route.Flow.Window, g.route.Flow.Size = "fixed", 10
				n := g.start("a", vfstest.New())
				for range 60 {
					g.produce(0)
				}
				time.Sleep(5 * time.Second)
				plain.mu.Lock()
				before := len(plain.got)
				plain.mu.Unlock()
				offset, metadata := g.broker.Committed(0)
				if offset != 0 || metadata == "" || before < 15 {
					t.Fatalf("%d records were delivered, %d is committed with %q", before, offset, metadata)
				}
				g.kill(n, 1)
				g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
				g.close()
				if n := g.counts(plain.got); n > c.most {
					t.Errorf("%d records were repeated, want at most %d", n, c.most)
				} else {
					t.Logf("%d records before the kill, %d repeated", before, n)
				}
			})
		})
	}
}
