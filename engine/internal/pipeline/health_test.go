package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestUnstableRoute checks a route that opens each time and fails 200 ms later, without having
// settled anything. From its first failure until the fault is mended, it must never count as ready.
// Then it is ready as soon as it delivers or, if there is no data, after stableAfter.
func TestUnstableRoute(t *testing.T) {
	for _, c := range []struct {
		site    string
		records int
	}{
		{"read", 10},
		{"read", 0},
		{"source goroutine", 0},
		{"sink goroutine", 0},
	} {
		t.Run(c.site, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { unstable(t, c.site, c.records) })
		})
	}
}

func unstable(t *testing.T, site string, records int) {
	var mended atomic.Bool
	f := &faults{site: site, calls: make(map[string]int), how: func() error {
		if mended.Load() {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
		return errors.New("struck")
	}}
	for n := range 1000 {
		f.at = append(f.at, n+1)
	}
	s := &faulty{fakeSource: &fakeSource{lines: numbered(records), size: 5}, sink: &fakeSink{},
		faults: f, t: t}
	e := jobOf(t, vfstest.New(), Options{}, s.source(), config.Route{Sink: s.sinkUse()})
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	time.Sleep(220 * time.Millisecond)
	for range 5000 {
		time.Sleep(20 * time.Millisecond)
		st := e.Status()
		if st.Ready || !strings.Contains(strings.Join(st.Why, " "), "struck") {
			t.Errorf("%v after the start: ready is %v, because of %q", e.elapsed(), st.Ready, st.Why)
			break
		}
	}
	mended.Store(true)
	wait := stableAfter + time.Second
	if records == 0 {
		wait += stableAfter
	}
	time.Sleep(wait)
	if st := e.Status(); !st.Ready {
		t.Errorf("%v after it was mended: %q", wait, st.Why)
	}
	e.Drain()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// TestStableRoute checks that a route that fails after it has settled a batch is ready as soon as
// it has opened again, even if no data follows.
func TestStableRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faults{site: "sink goroutine", at: []int{3}, calls: make(map[string]int),
			how: func() error { return errors.New("struck") }}
		s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: &fakeSink{},
			faults: f, t: t}
		e := jobOf(t, vfstest.New(), Options{}, s.source(), config.Route{Sink: s.sinkUse()})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		for e.Status().Routes[0].Starts < 2 {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if st := e.Status(); !st.Ready {
			t.Errorf("restarted, and not ready because of %q", st.Why)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestUnstableReplay checks that a replay of dead letters does not make an unstable route ready.
func TestUnstableReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken, mended, accepts atomic.Bool
		f := &faults{site: "read", calls: make(map[string]int), how: func() error {
			for !broken.Load() && !mended.Load() {
				time.Sleep(10 * time.Millisecond)
			}
			if mended.Load() {
				return nil
			}
			time.Sleep(200 * time.Millisecond)
			return errors.New("struck")
		}}
		for n := range 1000 {
			f.at = append(f.at, n+3) // after the data
		}
		sink := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			if accepts.Load() {
				return nil
			}
			return &flow.Rejected{Err: errors.New("refused")}
		}}
		s := &faulty{fakeSource: &fakeSource{lines: numbered(10), size: 5}, sink: sink,
			faults: f, t: t, blind: true}
		e := jobOf(t, vfstest.New(), Options{}, s.source(), config.Route{Sink: s.sinkUse()})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		broken.Store(true)
		time.Sleep(5 * time.Second)
		accepts.Store(true)
		r := e.Status().Routes[0]
		replay, err := e.ReplayLetters(t.Context(), r.Pipeline, r.Name, deadletter.Filter{}, false)
		if err != nil || replay.Delivered != 10 {
			t.Fatalf("replay: %+v, %v", replay, err)
		}
		for range 50 {
			st := e.Status()
			if st.Ready || !strings.Contains(strings.Join(st.Why, " "), "struck") {
				t.Errorf("after the replay: ready is %v, because of %q", st.Ready, st.Why)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		mended.Store(true)
		time.Sleep(2*stableAfter + time.Second)
		if st := e.Status(); !st.Ready {
			t.Errorf("after it was mended: %q", st.Why)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestEmptyBatch checks that a run that only settles batches without records is not stable.
func TestEmptyBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := jobOf(t, vfstest.New(), Options{}, use(stream.SourceRole, emptySource{}),
			config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		time.Sleep(220 * time.Millisecond)
		for range 1000 {
			if st := e.Status(); st.Ready {
				t.Errorf("%v after the start it is ready", e.elapsed())
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		<-ended
	})
}

// emptySource has a reader that returns a span without bytes, and fails 200 ms later.
type emptySource struct{}

// Open implements stream.Source.
func (emptySource) Open(context.Context, stream.OpenOptions) (stream.Reader, error) {
	return &emptyReader{part: &stream.Partition{ID: "p", Name: "p"}}, nil
}

type emptyReader struct {
	part *stream.Partition
	read bool
}

// Read implements stream.Reader.
func (r *emptyReader) Read(_ context.Context, b *stream.Batch) error {
	if r.read {
		time.Sleep(200 * time.Millisecond)
		return errors.New("struck")
	}
	r.read = true
	b.Spans = append(b.Spans, stream.Span{Part: r.part})
	return nil
}

// Commit implements stream.Reader.
func (r *emptyReader) Commit(context.Context, []stream.Mark) error { return nil }

// Close implements stream.Reader.
func (r *emptyReader) Close() error { return nil }

// slowSink is a fakeSink with an Open that waits while slow is set.
type slowSink struct {
	*fakeSink
	slow atomic.Bool
}

// Open implements stream.Sink.
func (s *slowSink) Open(ctx context.Context, o stream.SinkOptions) error {
	for s.slow.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	return s.fakeSink.Open(ctx, o)
}

// TestReopened checks a route that failed long ago. It must not count as failed while it opens
// again, either after a replay of dead letters or because its sink has asked for it.
func TestReopened(t *testing.T) {
	for _, replay := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { reopened(t, replay) })
	}
}

func reopened(t *testing.T, replay bool) {
	sink := &slowSink{fakeSink: &fakeSink{}}
	var accepts atomic.Bool
	sink.deliver = func(_ context.Context, a stream.Attempt) error {
		text := string(a.Value.AppendRaw(nil))
		switch {
		case !strings.Contains(text, "7\n"):
			return nil
		case accepts.Load():
			sink.slow.Store(true) // for the route, after the replay
			return nil
		}
		return &flow.Rejected{Err: errors.New("400 unlucky")}
	}
	r := config.DefaultRoute("r", "/state")
	r.Sink = use(stream.SinkRole, sink)
	e, end := runReplayed(t, vfstest.New(), &fakeSource{lines: numbered(10), size: 1}, r)
	stop := func(err error) { e.pipelines()[0].routes()[0].route.host.stop(err) }
	stop(errors.New("struck"))
	time.Sleep(time.Minute)
	accepts.Store(true)
	if replay {
		result, err := e.ReplayLetters(t.Context(), "p", "r", deadletter.Filter{}, false)
		if err != nil || result.Delivered != 1 {
			t.Errorf("a replay: %+v, %v", result, err)
		}
	} else {
		sink.slow.Store(true)
		stop(&stream.ReopenError{Err: errors.New("moved")})
	}
	time.Sleep(time.Second)
	st := e.Status()
	if route := st.Routes[0]; route.Starts != 2 || route.Health != healthRunning || !st.Ready ||
		route.Opening == 0 {
		t.Errorf("replay is %v: while it opens: %d starts, %s, %q; want 2, %s and none", replay,
			route.Starts, route.Health, st.Why, healthRunning)
	}
	sink.slow.Store(false)
	time.Sleep(time.Second)
	end()
}

// closedSource is a fakeSource that cannot be opened while closed is set.
type closedSource struct {
	*fakeSource
	closed atomic.Bool
}

// Open implements stream.Source.
func (s *closedSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if s.closed.Load() {
		time.Sleep(200 * time.Millisecond)
		return nil, errors.New("closed")
	}
	return s.fakeSource.Open(ctx, o)
}

// TestReplayOfFailingRoute checks that a replay of dead letters does not make a route ready that
// cannot open its source.
func TestReplayOfFailingRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var accepts atomic.Bool
		sink := &fakeSink{deliver: func(_ context.Context, a stream.Attempt) error {
			if text := string(a.Value.AppendRaw(nil)); accepts.Load() || !strings.Contains(text, "7\n") {
				return nil
			}
			return &flow.Rejected{Err: errors.New("400 unlucky")}
		}}
		r := config.DefaultRoute("r", "/state")
		r.Sink = use(stream.SinkRole, sink)
		source := &closedSource{fakeSource: &fakeSource{lines: numbered(10), size: 1}}
		e, end := runReplayed(t, vfstest.New(), source, r)
		check := func(when string, n int) {
			t.Helper()
			for range n {
				time.Sleep(10 * time.Millisecond)
				st := e.Status()
				if st.Ready || !strings.Contains(strings.Join(st.Why, " "), "closed") {
					t.Errorf("%s: ready is %v, because of %q", when, st.Ready, st.Why)
					return
				}
			}
		}
		source.closed.Store(true)
		e.pipelines()[0].routes()[0].route.host.stop(errors.New("closed"))
		check("before the replay", 3000)
		accepts.Store(true)
		result, err := e.ReplayLetters(t.Context(), "p", "r", deadletter.Filter{}, false)
		if err != nil || result.Delivered != 1 {
			t.Errorf("a replay: %+v, %v", result, err)
		}
		check("after the replay", 3000)
		source.closed.Store(false)
		time.Sleep(time.Minute)
		if st := e.Status(); !st.Ready {
			t.Errorf("at the end: %q", st.Why)
		}
		end()
	})
}
