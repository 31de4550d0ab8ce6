package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// faults strike at the calls of one kind that are listed, the first is 1.
type faults struct {
	site string
	at   []int
	how  func() error

	mu    sync.Mutex
	calls map[string]int
	hit   int
}

func (f *faults) strike(site string) error {
	f.mu.Lock()
	f.calls[site]++
	hit := site == f.site && slices.Contains(f.at, f.calls[site])
	if hit {
		f.hit++
	}
	f.mu.Unlock()
	if hit {
		return f.how()
	}
	return nil
}

// faulty is a source and a sink that fail where they are told to. Its Commit checks that nothing counts as settled that has
// not arrived.
type faulty struct {
	*fakeSource
	sink   *fakeSink
	faults *faults
	t      *testing.T
	host   penstock.Host
	blind  bool // there is another sink: Commit does not look
}

func (s *faulty) source() config.Use {
	return config.Use{Component: penstock.Component{Role: penstock.SourceRole, Name: "fake", New: func(_ any, h penstock.Host) (any, error) {
		s.host = h
		return s, nil
	}}}
}

// Open implements penstock.Source.
func (s *faulty) Open(ctx context.Context, o penstock.OpenOptions) (penstock.Reader, error) {
	if err := s.faults.strike("source open"); err != nil {
		return nil, err
	}
	s.host.Go("watch", func(ctx context.Context) error {
		for {
			if err := s.faults.strike("source goroutine"); err != nil {
				return err
			}
			if !paused(ctx, time.Second) {
				return nil
			}
		}
	})
	r, err := s.fakeSource.Open(ctx, o)
	return &faultyReader{r.(*fakeReader), s}, err
}

type faultyReader struct {
	*fakeReader
	f *faulty
}

// Read implements penstock.Reader.
func (r *faultyReader) Read(ctx context.Context, b *penstock.Batch) error {
	if err := r.f.faults.strike("read"); err != nil {
		return err
	}
	return r.fakeReader.Read(ctx, b)
}

// Commit implements penstock.Reader.
func (r *faultyReader) Commit(_ context.Context, marks []penstock.Mark) error {
	if r.f.blind {
		return nil
	}
	r.f.sink.mu.Lock()
	arrived := make(map[string]bool)
	for _, line := range r.f.sink.got {
		arrived[line] = true
	}
	r.f.sink.mu.Unlock()
	for _, m := range marks {
		for n := range m.Watermark.Num {
			if !arrived[fmt.Sprintf("line %d", n)] {
				r.f.t.Errorf("everything up to %d counts as settled, and line %d has not arrived", m.Watermark.Num, n)
			}
		}
	}
	return r.f.faults.strike("commit")
}

// Close implements penstock.Reader.
func (r *faultyReader) Close() error { return r.f.faults.strike("reader close") }

// faultySink is the sink's side.
type faultySink struct {
	*fakeSink
	faults *faults
	host   penstock.Host
}

func (s *faulty) sinkUse() config.Use {
	return config.Use{Component: penstock.Component{Role: penstock.SinkRole, Name: "fake", New: func(_ any, h penstock.Host) (any, error) {
		return &faultySink{s.sink, s.faults, h}, nil
	}}}
}

// Open implements penstock.Sink.
func (s *faultySink) Open(ctx context.Context, o penstock.SinkOptions) error {
	if err := s.faults.strike("sink open"); err != nil {
		return err
	}
	s.host.Go("keep", func(ctx context.Context) error {
		for {
			if err := s.faults.strike("sink goroutine"); err != nil {
				return err
			}
			if !paused(ctx, time.Second) {
				return nil
			}
		}
	})
	set := o.Lanes
	o.Lanes = func(lanes []penstock.Lane) {
		for i := range lanes {
			lanes[i].Worker = s
		}
		set(lanes)
	}
	return s.fakeSink.Open(ctx, o)
}

// Deliver implements penstock.Worker.
func (s *faultySink) Deliver(ctx context.Context, a penstock.Attempt) (flow.Report, error) {
	if err := s.faults.strike("deliver"); err != nil {
		return flow.Report{}, err
	}
	return s.fakeSink.Deliver(ctx, a)
}

// Encode implements penstock.Encoder.
func (s *faultySink) Encode(dst []byte, b *penstock.Batch) ([]byte, error) {
	return dst, s.faults.strike("encode")
}

// Sync implements penstock.Syncer.
func (s *faultySink) Sync(context.Context) error { return s.faults.strike("sync") }

// Close implements penstock.Sink.
func (s *faultySink) Close() error { return s.faults.strike("sink close") }

// TestRestarts: whatever of a route or its source panics, ends its goroutine or returns an error, at the first calls or in the
// middle of the work, everything arrives, nothing counts as settled that has not, the accounts are right at every moment, the
// engine heals by itself, and the next run finds nothing left to do.
func TestRestarts(t *testing.T) {
	hows := map[string]func() error{
		"panic":  func() error { panic("struck") },
		"error":  func() error { return errors.New("struck") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	}
	early, always := [][]int{{1}, {1, 2}, {1, 2, 3, 4, 5}}, [][]int{{1}, {2, 3}, {4, 5, 9}}
	for site, times := range map[string][][]int{
		"source open": early, "source goroutine": always, "read": always, "commit": always, "reader close": {{1}},
		"sink open": early, "sink goroutine": always, "deliver": always, "encode": always, "sync": always, "sink close": {{1}},
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
	s := &faulty{fakeSource: &fakeSource{lines: numbered(records), size: 7}, sink: &fakeSink{workers: 2}, faults: f, t: t}
	s.sink.deliver = func(ctx context.Context, _ penstock.Attempt) error { paused(ctx, time.Second); return ctx.Err() }
	m := vfstest.New()
	e := jobOf(t, m, Options{}, s.source(), config.Route{Sink: s.sinkUse()})
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	last := int64(0)
	for range 120 {
		time.Sleep(time.Second)
		r := e.Snapshot().Routes[0]
		conserved(t, r)
		if r.ReadRecords < last {
			t.Errorf("%d records were read, and then %d", last, r.ReadRecords)
		}
		last = r.ReadRecords
	}
	r := e.Snapshot().Routes[0]
	if r.Health != healthRunning || r.ReadRecords != records || r.Delivered != records {
		t.Errorf("after two minutes: %s, %d read, %d delivered, because of %v", r.Health, r.ReadRecords, r.Delivered, r.Err)
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
	next := jobOf(t, m, Options{Once: true}, use(penstock.SourceRole, s.fakeSource), config.Route{Sink: use(penstock.SinkRole, again)})
	if err := next.Run(t.Context()); err != nil || len(again.got) > 0 {
		t.Errorf("the next run: %v, %d records", err, len(again.got))
	}
}

// TestRestartIsSeen: while a route waits for its restart its health, its reason and the tree say so; when it drains then, it
// is not started again.
func TestRestartIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		f := &faults{site: "sink open", at: slices.Collect(func(yield func(int) bool) {
			for n := 1; n < 100 && yield(n); n++ {
			}
		}), how: func() error {
			if broken {
				return errors.New("no such table")
			}
			return nil
		}, calls: make(map[string]int)}
		s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{}, faults: f, t: t, blind: true}
		good := &fakeSink{}
		e := jobOf(t, vfstest.New(), Options{}, s.source(), config.Route{Sink: s.sinkUse()}, config.Route{Sink: use(penstock.SinkRole, good)})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(5 * time.Minute)
		r := e.Snapshot().Routes[0]
		if r.Health != healthRestarting || r.Again > 31*time.Second || r.Starts < 8 || !strings.Contains(fmt.Sprint(r.Err), "no such table") {
			t.Errorf("health %s, again in %v, start %d, because of %v", r.Health, r.Again, r.Starts, r.Err)
		}
		if n := e.Snapshot().Routes[1]; n.Health != healthRunning || n.Delivered != 10 || n.Starts != 1 {
			t.Errorf("the other route: %+v", n)
		}
		node := e.Tree().Children[0].Children[0]
		if node.State != supervise.Waiting || node.Err != "sink fake: no such table" || node.Starts != uint64(r.Starts) {
			t.Errorf("the tree:\n%v", e.Tree())
		}
		if st := e.Status(); st.Ready || !strings.Contains(strings.Join(st.Why, " "), "no such table") {
			t.Errorf("it says that it is ready: %v", st.Why)
		}
		broken = false
		time.Sleep(time.Minute)
		if r := e.Snapshot().Routes[0]; r.Health != healthRunning || r.Delivered != 10 {
			t.Errorf("mended, its health is %s, %d delivered", r.Health, r.Delivered)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestDrainWhileWaiting: a route that waits for its restart when the engine drains ends at once, with why it had failed.
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
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "struck") || time.Since(began) > 2*time.Second {
				t.Errorf("%s: Run = %v, %v after Drain", f.site, err, time.Since(began))
			}
		}
	})
}

// TestOnceIsNotRestarted: a finite run ends with the first failure of a route, panics included, and the guard's stop is final
// also in a run without an end.
func TestOnceIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, site := range []string{"sink open", "read", "commit", "sink close"} {
			f := &faults{site: site, at: []int{1}, calls: make(map[string]int), how: func() error { panic("struck") }}
			s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{}, faults: f, t: t}
			e := jobOf(t, vfstest.New(), Options{Once: true}, s.source(), config.Route{Sink: s.sinkUse()})
			began := time.Now()
			if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "panic: struck") || f.calls["sink open"] != 1 {
				t.Errorf("%s: Run = %v, the sink was opened %d times", site, err, f.calls["sink open"])
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%s: it took %v", site, took)
			}
		}
		refuses := &fakeSink{deliver: func(context.Context, penstock.Attempt) error { return &flow.Rejected{Err: errors.New("400")} }}
		e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{lines: numbered(5000), size: 50}, config.Route{Sink: use(penstock.SinkRole, refuses)})
		if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped by the guard") {
			t.Errorf("Run = %v", err)
		}
		if r := e.Snapshot().Routes[0]; r.Starts != 1 || r.Health != healthStopped {
			t.Errorf("the guard has stopped it: start %d, %s", r.Starts, r.Health)
		}
	})
}
