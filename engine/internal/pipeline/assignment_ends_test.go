package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestSuspendedBeforeTake suspends the process "a" just before it takes a partition in the sink's
// ledger again. Meanwhile the process "b" becomes the owner of the partition. When "a" continues,
// it gets the newest epoch in the ledger, but must not write with it. The true owner, "b", must
// then take the partition again.
func TestSuspendedBeforeTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := streamtest.NewStore()
		var takes atomic.Int32
		resume := make(chan struct{})
		g := newGroup(t, 1, func(n *node) any {
			s := streamtest.NewStoreSink(store)
			s.Before = func(context.Context, stream.Attempt) error { n.wait(); return nil }
			if n.name == "a" {
				s.BeforeTake = func(context.Context) error {
					if takes.Add(1) == 2 {
						<-resume
					}
					return nil
				}
				s.AfterTake = func(context.Context) { time.Sleep(30 * time.Second) } // deliveries are tried meanwhile
			}
			return s
		})
		a := g.start("a", vfstest.New())
		g.until("the first owner has it", func() bool {
			return a.engine.statusWithoutTree().Routes[0].Counters["partitions_assigned"] == 1
		})
		wakeA := a.hang()
		for range 20 {
			g.produce(0)
		}
		time.Sleep(time.Second)
		store.Steal("p0")
		wakeA() // its deliveries are fenced, and it takes the partition again
		g.until("the first owner is suspended", func() bool { return takes.Load() == 2 })
		g.cut = 3 // the next owner cuts batches differently
		b := g.start("b", vfstest.New())
		wakeB := b.hang()
		g.broker.Freeze("a")
		g.until("the next owner has it", func() bool { return g.broker.Owners()[0] == "b" && store.Epoch("p0") == 3 })
		time.Sleep(time.Second)
		close(resume)
		time.Sleep(29 * time.Second)
		if n := len(store.Rows()); n > 0 || store.Epoch("p0") != 4 {
			t.Errorf("the suspended process wrote %d rows in epoch %d", n, store.Epoch("p0"))
		}
		wakeB()
		g.until("all rows are there", func() bool { return len(store.Rows()) >= 20 })
		if n := b.engine.statusWithoutTree().Routes[0].Counters["partitions_taken_again"]; n == 0 {
			t.Error("the true owner did not take the partition back")
		}
		g.broker.Thaw("a")
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		g.close()
		if n := g.counts(store.Rows()); n > 0 || len(store.Mistakes()) > 0 {
			t.Errorf("%d rows are there twice: %v", n, store.Mistakes())
		}
	})
}

// TestRevocationIsBounded checks that a revocation waits for a hanging worker, but only up to a
// bound. The counter revoked_in_flight must then include the records that the worker may still
// deliver.
func TestRevocationIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := &fakeSink{}
		g := newGroup(t, 2, func(n *node) any {
			return &sharedSink{fakeSink: plain, before: func(context.Context, stream.Attempt) error {
				n.wait()
				return nil
			}}
		})
		g.route.Flow.Window, g.route.Flow.Size, g.route.Flow.Timeout = "fixed", 4, "1h"
		a := g.start("a", vfstest.New())
		g.until("the partitions are assigned", func() bool {
			return a.engine.statusWithoutTree().Routes[0].Counters["partitions_assigned"] == 2
		})
		wake := a.hang()
		for i := range 30 {
			g.produce(i % 2)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		g.start("b", vfstest.New())
		g.until("a partition has moved", func() bool { return g.broker.Owners()[1] == "b" })
		if took := time.Since(begin); took < stream.RevokeTimeout || took > stream.RevokeTimeout+time.Second {
			t.Errorf("the revocation took %v", took)
		}
		wake()
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		late := a.engine.statusWithoutTree().Routes[0].Counters["revoked_in_flight"]
		g.close()
		repeated := g.counts(plain.got)
		if repeated == 0 || int64(repeated) > late {
			t.Errorf("%d records were repeated, %d were said to be in flight", repeated, late)
		}
	})
}

// TestAssignIsGivenUp assigns partitions while the sink is down, and then revokes them. The
// revocation must not wait for the sink. The next owner takes the partitions when the sink is
// available again.
func TestAssignIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := streamtest.NewStore()
		g := newGroup(t, 2, func(*node) any { return streamtest.NewStoreSink(store) })
		store.SetDown(errors.New("connection refused"))
		g.start("a", vfstest.New())
		g.produce(0)
		g.produce(1)
		time.Sleep(time.Minute)
		begin := time.Now()
		g.start("b", vfstest.New())
		g.until("a partition has moved", func() bool { return g.broker.Owners()[1] == "b" })
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the revocation took %v", took)
		}
		store.SetDown(nil)
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		g.close()
		if n := g.counts(store.Rows()); n > 0 {
			t.Errorf("%d rows are there twice", n)
		}
	})
}

// slowOwns wraps a source. The method Owns of its reader, which asks the broker whether this
// process owns a partition, waits until the channel resume is closed. slowOwns also records the
// results of Assign.
type slowOwns struct {
	stream.AssignedSource
	asked   atomic.Int32
	resume  chan struct{}
	results chan assignResult
}

type assignResult struct {
	got []stream.Assignment
	err error
}

func (s *slowOwns) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	o.Assignments = slowAssignments{o.Assignments, s}
	r, err := s.AssignedSource.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return slowOwnsReader{r.(stream.AssignedReader), s}, nil
}

type slowOwnsReader struct {
	stream.AssignedReader
	s *slowOwns
}

func (r slowOwnsReader) Owns(ctx context.Context, id string) (bool, error) {
	r.s.asked.Add(1)
	select {
	case <-r.s.resume:
		return r.AssignedReader.Owns(ctx, id)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

type slowAssignments struct {
	stream.Assignments
	s *slowOwns
}

func (a slowAssignments) Assign(ctx context.Context, offers []stream.PartitionOffer) ([]stream.Assignment, error) {
	got, err := a.Assignments.Assign(ctx, offers)
	a.s.results <- assignResult{got, err}
	return got, err
}

// TestAssignEndsWhileOwnershipIsChecked cancels Assign while it asks the broker for the owner.
// Assign must return an error for the whole call. If it returned the error for the partition only
// ([stream.Assignment.Err]), the source would not offer the partition again, and nobody would read
// it.
func TestAssignEndsWhileOwnershipIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := streamtest.NewStore()
		g := newGroup(t, 2, func(*node) any { return streamtest.NewStoreSink(store) })
		slow := &slowOwns{resume: make(chan struct{}), results: make(chan assignResult, 100)}
		g.wrap = func(n *node, s stream.AssignedSource) stream.AssignedSource {
			if n.name != "a" {
				return s
			}
			slow.AssignedSource = s
			return slow
		}
		g.start("a", vfstest.New())
		g.until("the owner of both is asked for", func() bool { return slow.asked.Load() == 2 })
		g.start("b", vfstest.New()) // one partition is revoked
		if r := <-slow.results; r.got != nil || !errors.Is(r.err, context.Canceled) {
			t.Errorf("Assign = %v, %v; want an error", r.got, r.err)
		}
		close(slow.resume)
		g.produce(0)
		g.produce(1)
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		g.close()
		if n := g.counts(store.Rows()); n > 0 {
			t.Errorf("%d rows are there twice", n)
		}
	})
}

// TestPositionsDisagree checks that a partition is not read if the broker's position contradicts
// the sink's ledger. The reason is reported, and the other partitions are delivered.
func TestPositionsDisagree(t *testing.T) {
	for _, c := range []struct {
		name    string
		disturb func(*group, *streamtest.Store)
		want    string
	}{
		{"offset set back", func(g *group, _ *streamtest.Store) {
			g.broker.SetCommitted(0, 3)
		}, "was set to 3 by other software"},
		{"ledger lost", func(_ *group, s *streamtest.Store) {
			s.DeleteLedger("p0")
		}, "the sink's ledger does not have the partition"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := streamtest.NewStore()
				g := newGroup(t, 2, func(*node) any { return streamtest.NewStoreSink(store) })
				first := g.start("a", vfstest.New())
				for i := range 20 {
					g.produce(i % 2)
				}
				g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
				g.leave(first)
				c.disturb(g, store)
				n := g.start("b", vfstest.New())
				g.broker.Produce(0, "not to be read")
				g.produce(1)
				g.until("the other partition goes on", func() bool { return len(store.Rows()) == 21 })
				time.Sleep(time.Minute)
				faults := n.faults()
				if faults == nil || !strings.Contains(faults.Error(), c.want) {
					t.Errorf("reported: %v, want %q", faults, c.want)
				}
				g.close()
				if n := g.counts(store.Rows()); n > 0 {
					t.Errorf("%d rows are there twice", n)
				}
			})
		})
	}
}

// faults returns the faults of the node's first route since its last start.
func (n *node) faults() error {
	s := n.engine.pipelines()[0].routes()[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.route.host.faults.Err()
}

// TestLedgerLostWhileItRuns removes a partition from the sink's ledger during delivery. When the
// process takes the partition again, it must not create a new ledger entry. Nothing is delivered
// twice, the reason is reported, and the other partition continues.
func TestLedgerLostWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := streamtest.NewStore()
		g := newGroup(t, 2, func(*node) any { return streamtest.NewStoreSink(store) })
		n := g.start("a", vfstest.New())
		for i := range 20 {
			g.produce(i % 2)
		}
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		store.DeleteLedger("p0")
		g.broker.Produce(0, "not to be read")
		g.until("the reason is reported", func() bool {
			faults := n.faults()
			return faults != nil && strings.Contains(faults.Error(), "the sink's ledger does not have the partition")
		})
		g.produce(1)
		g.until("the other partition goes on", func() bool { return len(store.Rows()) == 21 })
		g.close()
		if n := g.counts(store.Rows()); n > 0 {
			t.Errorf("%d rows are there twice", n)
		}
	})
}

// TestMovedOffset checks a sink without a ledger. If an operator sets the offset of a partition,
// the next assignment must begin there.
func TestMovedOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := &fakeSink{}
		g := newGroup(t, 1, func(*node) any { return plain })
		for range 20 {
			g.produce(0)
		}
		g.broker.SetCommitted(0, 12)
		g.written = g.written[12:]
		g.start("a", vfstest.New())
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		g.close()
		if n := g.counts(plain.got); n > 0 {
			t.Errorf("%d records were repeated", n)
		}
	})
}

// ledgeredFake is a sink with one ledger for the whole route.
type ledgeredFake struct{ fakeSink }

func (*ledgeredFake) Load(context.Context) ([]stream.Mark, error)  { return nil, nil }
func (*ledgeredFake) LedgerName() string                           { return "fake" }
func (*ledgeredFake) Prune(context.Context, []string) error        { return nil }
func (*ledgeredFake) Store(context.Context, []stream.Span) error   { return nil }
func (*ledgeredFake) Compact(context.Context, []stream.Mark) error { return nil }

// TestOneLedgerForTheRoute checks that a route is refused if its partitions move between processes,
// but its sink has one ledger with a single owner for the whole route.
func TestOneLedgerForTheRoute(t *testing.T) {
	route := config.DefaultRoute("r0", "/state")
	route.Sink = use(stream.SinkRole, &ledgeredFake{})
	source := config.Use{Component: stream.Component{Role: stream.SourceRole, Name: "broker",
		New: func(_ any, h stream.Host) (any, error) {
			return streamtest.NewBrokerSource(streamtest.NewBroker(1), h, "a"), nil
		}}}
	_, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{
		{Name: "p", Source: source, Routes: []config.Route{route}},
	}}, Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "one ledger for the whole route") {
		t.Errorf("New = %v", err)
	}
}

// TestStuckPartitionOfOthers checks a process that loses a partition while deliveries of that
// partition hang. The hanging attempts must be canceled at once, and the other partition must be
// delivered without repetitions.
func TestStuckPartitionOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := &fakeSink{}
		var canceled atomic.Int32
		g := newGroup(t, 2, func(n *node) any {
			return &sharedSink{fakeSink: plain, before: func(ctx context.Context, a stream.Attempt) error {
				if n.name == "a" && a.Value.Spans[0].Part.ID == "p1" {
					<-ctx.Done()
					canceled.Add(1)
					return context.Cause(ctx)
				}
				return nil
			}}
		})
		g.route.Flow.Window, g.route.Flow.Size, g.route.Flow.Timeout = "fixed", 4, "1h"
		g.start("a", vfstest.New())
		for i := range 10 {
			g.produce(i % 2)
		}
		time.Sleep(time.Second)
		g.start("b", vfstest.New())
		time.Sleep(time.Second) // until it has joined
		g.broker.Expire("a")
		time.Sleep(time.Second)
		if n := canceled.Load(); n == 0 {
			t.Error("the deliveries of a lost partition were not canceled")
		}
		g.until("all is committed", func() bool { return g.broker.Lag() == 0 })
		g.close()
		if n := g.counts(plain.got); n > 0 {
			t.Errorf("%d records were repeated", n)
		}
	})
}
