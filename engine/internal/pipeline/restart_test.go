package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestRestarts makes each part of a route or its source panic, end its goroutine or return an
// error, in its first calls or in later ones. Each time, the engine must recover by itself, and
// everything must arrive. Commit must get no progress of records that have not arrived, and at
// every moment the number of records read must equal the sum of their outcomes. The next run finds
// nothing to deliver.
func TestRestarts(t *testing.T) {
	hows := map[string]func() error{
		"panic":  func() error { panic("struck") },
		"error":  func() error { return errors.New("struck") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	}
	early, always := [][]int{{1}, {1, 2}, {1, 2, 3, 4, 5}}, [][]int{{1}, {2, 3}, {4, 5, 9}}
	for site, times := range map[string][][]int{
		"source open": early, "source goroutine": always, "read": always, "commit": always, "reader close": {{1}},
		"sink open": early, "sink goroutine": always, "deliver": always, "encode": always,
		"sync": always, "sink close": {{1}},
	} {
		for _, how := range slices.Sorted(maps.Keys(hows)) {
			for _, at := range times {
				t.Run(fmt.Sprint(site, " ", how, " ", at), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						struck(t, &faults{site: site, at: at, how: hows[how], calls: make(map[string]int)})
					})
				})
			}
		}
	}
}

func struck(t *testing.T, f *faults) {
	const records = 300
	s := &faulty{fakeSource: &fakeSource{lines: numbered(records), size: 7},
		sink: &fakeSink{workers: 2}, faults: f, t: t}
	s.sink.deliver = func(ctx context.Context, _ stream.Attempt) error {
		_ = retry.Sleep(ctx, time.Second)
		return ctx.Err()
	}
	m := vfstest.New()
	slow := config.DefaultRoute("r0", "/state").Flow // a growing window would end too early
	slow.Window, slow.Size = "fixed", 2
	e := jobOf(t, m, Options{}, s.source(), config.Route{Sink: s.sinkUse(), Flow: slow})
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	last := int64(0)
	for range 120 {
		time.Sleep(time.Second)
		r := e.statusWithoutTree().Routes[0]
		conserved(t, r)
		if r.ReadRecords < last {
			t.Errorf("%d records were read, and then %d", last, r.ReadRecords)
		}
		last = r.ReadRecords
	}
	r := e.statusWithoutTree().Routes[0]
	if r.Health != healthRunning || r.ReadRecords != records || r.Delivered != records {
		t.Errorf("after two minutes: %s, %d read, %d delivered, because of %v", r.Health,
			r.ReadRecords, r.Delivered, r.Error)
	}
	if f.hit == 0 && !strings.HasSuffix(f.site, "close") {
		t.Errorf("nothing struck: the test shows nothing: %v", f.calls)
	}
	e.Drain()
	if err := <-ended; err != nil && !strings.HasSuffix(f.site, "close") {
		t.Errorf("Run = %v after it has healed", err)
	}
	arrived := make(map[string]bool)
	for _, line := range s.sink.got {
		arrived[line] = true
	}
	if len(arrived) != records {
		t.Errorf("%d of %d records arrived", len(arrived), records)
	}
	again := &fakeSink{}
	next := jobOf(t, m, Options{Once: true}, use(stream.SourceRole, s.fakeSource),
		config.Route{Sink: use(stream.SinkRole, again)})
	if err := next.Run(t.Context()); err != nil || len(again.got) > 0 {
		t.Errorf("the next run: %v, %d records", err, len(again.got))
	}
}

// TestRestartIsSeen checks that health, reason and tree show that a route waits for its restart.
// Meanwhile the other route must deliver. Once the fault is mended, the waiting route must deliver,
// too.
func TestRestartIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		f := &faults{site: "sink open", at: slices.Collect(func(yield func(int) bool) {
			for n := 1; n < 100 && yield(n); n++ {
			}
		}), how: func() error {
			if mended.Load() {
				return nil
			}
			return errors.New("no such table")
		}, calls: make(map[string]int)}
		s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{},
			faults: f, t: t, blind: true}
		good := &fakeSink{}
		e := jobOf(t, vfstest.New(), Options{}, s.source(),
			config.Route{Sink: s.sinkUse()}, config.Route{Sink: use(stream.SinkRole, good)})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(5 * time.Minute)
		r := e.statusWithoutTree().Routes[0]
		says := strings.Contains(r.Error, "no such table")
		if r.Health != healthRestarting || r.Again > 31 || r.Starts < 8 || !says {
			t.Errorf("health %s, again in %v s, start %d, because of %v", r.Health, r.Again, r.Starts, r.Error)
		}
		if n := e.statusWithoutTree().Routes[1]; n.Health != healthRunning || n.Delivered != 10 ||
			n.Starts != 1 {
			t.Errorf("the other route: %+v", n)
		}
		node := e.Tree().Children[0].Children[0]
		if node.State != supervise.Waiting || node.Err != "sink fake: no such table" ||
			node.Starts != uint64(r.Starts) {
			t.Errorf("the tree:\n%v", e.Tree())
		}
		if st := e.Status(); st.Ready || !strings.Contains(strings.Join(st.Why, " "), "no such table") {
			t.Errorf("it says that it is ready: %v", st.Why)
		}
		mended.Store(true)
		time.Sleep(time.Minute)
		if r := e.statusWithoutTree().Routes[0]; r.Health != healthRunning || r.Delivered != 10 {
			t.Errorf("mended, its health is %s, %d delivered", r.Health, r.Delivered)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestDrainWhileWaiting checks that a drain immediately ends a route that waits for its restart.
// The route's error is that of its last run.
func TestDrainWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{site: "source goroutine", at: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, calls: make(map[string]int),
			how: func() error { return errors.New("struck") }}
		for _, f.site = range []string{"sink open", "source goroutine"} {
			clear(f.calls)
			s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{}, faults: f, t: t}
			e := jobOf(t, vfstest.New(), Options{}, s.source(), config.Route{Sink: s.sinkUse()})
			ended := make(chan error, 1)
			go func() { ended <- e.Run(t.Context()) }()
			time.Sleep(20 * time.Second)
			began := time.Now()
			e.Drain()
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "struck") ||
				time.Since(began) > 2*time.Second {
				t.Errorf("%s: Run = %v, %v after Drain", f.site, err, time.Since(began))
			}
		}
	})
}

// TestOnceIsNotRestarted checks that a finite run ends with the first failure of a route, also with
// a panic. In any other run, a route that the guard has stopped does not restart if its source
// cannot watch its input.
func TestOnceIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, site := range []string{"sink open", "read", "commit", "sink close"} {
			f := &faults{site: site, at: []int{1}, calls: make(map[string]int), how: func() error { panic("struck") }}
			s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{}, faults: f, t: t}
			e := jobOf(t, vfstest.New(), Options{Once: true}, s.source(), config.Route{Sink: s.sinkUse()})
			began := time.Now()
			if err := e.Run(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "panic: struck") || f.calls["sink open"] != 1 {
				t.Errorf("%s: Run = %v, the sink was opened %d times", site, err, f.calls["sink open"])
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%s: it took %v", site, took)
			}
		}
		refuses := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			return &flow.Rejected{Err: errors.New("400")}
		}}
		source := &fakeSource{lines: numbered(5000), size: 50}
		e := fakeJob(t, vfstest.New(), Options{}, source, config.Route{Sink: use(stream.SinkRole, refuses)})
		if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped by the guard") {
			t.Errorf("Run = %v", err)
		}
		if r := e.statusWithoutTree().Routes[0]; r.Starts != 1 || r.Health != healthStopped {
			t.Errorf("the guard has stopped it: start %d, %s", r.Starts, r.Health)
		}
	})
}

// TestFaultEndsOneFinitePipeline runs two finite pipelines. The source of one of them reports a
// fault when it ends. Run must return this fault, and the other pipeline must still deliver all of
// its data.
func TestFaultEndsOneFinitePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := &hosted{fakeSource: &fakeSource{lines: numbered(10), size: 5}}
		faulty.watch = func(ctx context.Context, h stream.SourceHost) error {
			<-ctx.Done()
			h.Fault(errors.New("2 records are lost"))
			return nil
		}
		slow := &fakeSink{deliver: func(ctx context.Context, _ stream.Attempt) error {
			return retry.Sleep(ctx, time.Second)
		}}
		pipeline := func(name string, source config.Use, sink *fakeSink) config.Pipeline {
			r := config.DefaultRoute("main", "/state")
			r.Sink = use(stream.SinkRole, sink)
			return config.Pipeline{Name: name, Source: source, Routes: []config.Route{r}}
		}
		rest := &fakeSource{lines: numbered(50), size: 5}
		e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{
			pipeline("a", faulty.use(), &fakeSink{}),
			pipeline("b", use(stream.SourceRole, rest), slow),
		}}, Options{Once: true, FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(t.Context()); err == nil || err.Error() != "a: 2 records are lost" {
			t.Errorf("Run = %v", err)
		}
		if len(slow.got) != 50 {
			t.Errorf("the other pipeline delivered %d of 50 records", len(slow.got))
		}
	})
}

// TestCheckpointFails makes the checkpoint unwritable for some time. The route must not stop,
// nothing is delivered twice, the replay bound holds, and the checkpoint is written later. In a
// second case, a sync fails. The route must then restart and open the checkpoint again. In both
// cases the next run finds nothing to deliver.
func TestCheckpointFails(t *testing.T) {
	for op, starts := range map[vfstest.Op]int{vfstest.OpWrite: 1, vfstest.OpSync: 2} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failedCheckpoint(t, op, starts) })
		})
	}
}

func failedCheckpoint(t *testing.T, op vfstest.Op, starts int) {
	const records, replay, textBytes = 3000, 4096, 8
	m := vfstest.New()
	f := &faults{calls: make(map[string]int)}
	s := &faulty{fakeSource: &fakeSource{lines: numbered(records), size: 5}, sink: &fakeSink{}, faults: f, t: t}
	s.sink.deliver = func(ctx context.Context, _ stream.Attempt) error {
		_ = retry.Sleep(ctx, time.Second)
		return ctx.Err()
	}
	route := config.Route{Sink: s.sinkUse(), Checkpoint: config.Checkpoint{Replay: replay, Sync: time.Second}}
	e := jobOf(t, m, Options{}, s.source(), route)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	time.Sleep(3500 * time.Millisecond)
	m.Fail(vfstest.Fault{Op: op, Path: checkpoint.Name, Lasting: true, Err: syscall.ENOSPC})
	time.Sleep(time.Minute)
	r := e.statusWithoutTree().Routes[0]
	conserved(t, r)
	if r.ReplayBytes > r.ReplayBoundBytes || r.Delivered == records {
		t.Errorf("with a full disk %d records are delivered, and a kill would repeat %d bytes of at most %d",
			r.Delivered, r.ReplayBytes, r.ReplayBoundBytes)
	}
	if m.Heal() == 0 {
		t.Error("nothing failed: the test shows nothing")
	}
	time.Sleep(5 * time.Minute)
	r = e.statusWithoutTree().Routes[0]
	conserved(t, r)
	if r.Delivered < records || r.Health != healthRunning || min(r.Starts, 2) != starts {
		t.Errorf("mended: %d delivered, %s, start %d: %v", r.Delivered, r.Health, r.Starts, r.Error)
	}
	twice := len(s.sink.got) - records
	t.Logf("%d of %d records arrived twice", twice, records)
	if starts == 1 && twice != 0 || twice > replay/textBytes {
		t.Errorf("%d records arrived twice", twice)
	}
	e.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	again := &fakeSink{}
	next := jobOf(t, m, Options{Once: true}, use(stream.SourceRole, s.fakeSource),
		config.Route{Sink: use(stream.SinkRole, again)})
	if err := next.Run(t.Context()); err != nil || len(again.got) > 0 {
		t.Errorf("the next run: %v, %d records", err, len(again.got))
	}
}

// TestFencedRouteStaysStopped checks that a route that has lost its ledger to another process does
// not take it back.
func TestFencedRouteStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{site: "sink goroutine", at: []int{3}, calls: make(map[string]int), how: func() error {
			return fmt.Errorf("writer: %w", &sqlspan.FencedError{Ledger: "p/r0", Own: 1, Seen: 2})
		}}
		s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{}, faults: f, t: t}
		e := jobOf(t, vfstest.New(), Options{}, s.source(), config.Route{Sink: s.sinkUse()})
		err := e.Run(t.Context())
		if fenced, ok := errors.AsType[*sqlspan.FencedError](err); !ok || fenced.Seen != 2 {
			t.Errorf("Run = %v", err)
		}
		if r := e.statusWithoutTree().Routes[0]; r.Starts != 1 || r.Health != healthStopped ||
			f.calls["sink open"] != 1 {
			t.Errorf("start %d, %s, the sink was opened %d times", r.Starts, r.Health, f.calls["sink open"])
		}
	})
}
