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
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// parkingSink is a fakeSink that parks the records that it accepts: it stores them, to deliver them
// later. The function parked returns the counts of its store.
type parkingSink struct {
	*fakeSink
	parked func() stream.ParkedCounts
}

// Parked implements stream.ParkingSink.
func (s *parkingSink) Parked() stream.ParkedCounts { return s.parked() }

// Deliveries implements stream.ParkingSink.
func (s *parkingSink) Deliveries() stream.DeliveryStore { return nil }

// runReplayed starts an engine with one route p/r.
func runReplayed(t *testing.T, m *vfstest.Mem, source stream.Source, r config.Route) (
	e *Engine, end func(),
) {
	t.Helper()
	e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{{
		Name: "p", Source: use(stream.SourceRole, source), Routes: []config.Route{r},
	}}}, Options{FS: m, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	time.Sleep(10 * time.Second)
	return e, func() {
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestReplayParks checks the counts of a route with a parking sink, which stores records and
// delivers them later, before and after a replay and a discard of its dead letters. The counts must
// never shrink, and a dead letter that the replay has only parked must not count as delivered.
func TestReplayParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		refuses.Store(true)
		var accepted, delivered atomic.Int64
		sink := &parkingSink{fakeSink: &fakeSink{}}
		sink.deliver = func(_ context.Context, a stream.Attempt) error {
			text := string(a.Value.AppendRaw(nil))
			if refuses.Load() && strings.Contains(text, "7\n") {
				return &flow.Rejected{Err: errors.New("400 unlucky")}
			}
			accepted.Add(int64(strings.Count(text, "\n")))
			return nil
		}
		sink.parked = func() (c stream.ParkedCounts) {
			c.Delivered = delivered.Load()
			c.Waiting = accepted.Load() - c.Delivered
			return c
		}
		r := config.DefaultRoute("r", "/state")
		r.Sink = use(stream.SinkRole, sink)
		source := &fakeSource{lines: numbered(100), size: 1}
		e, end := runReplayed(t, vfstest.New(), source, r)
		check := func(when string, read, delivered, dead, parked int64) {
			t.Helper()
			s := e.statusWithoutTree().Routes[0]
			got := status.Route{ReadRecords: s.ReadRecords, Delivered: s.Delivered, Dead: s.Dead,
				Parked: s.Parked}
			if got.ReadRecords != read || got.Delivered != delivered || got.Dead != dead ||
				got.Parked != parked {
				const want = "%s: %d read, %d delivered, %d dead, %d parked; want %d, %d, %d, %d"
				t.Errorf(want, when, s.ReadRecords, s.Delivered, s.Dead, s.Parked, read, delivered,
					dead, parked)
			}
		}
		delivered.Store(60)
		check("before", 100, 60, 10, 30)
		refuses.Store(false)
		f := deadletter.Filter{}
		result, err := e.ReplayLetters(t.Context(), "p", "r", f, false)
		if err != nil || result.Letters != 10 || result.Parked != 10 || result.Delivered != 0 {
			t.Errorf("a replay: %+v, %v", result, err)
		}
		time.Sleep(time.Second)
		check("after a replay", 110, 60, 10, 40)
		delivered.Store(100)
		check("at the end", 110, 100, 10, 0)
		result, err = e.ReplayLetters(t.Context(), "p", "r", f, true)
		if err != nil || result.Letters != 0 || result.Parked != 0 {
			t.Errorf("a discard: %+v, %v", result, err)
		}
		time.Sleep(time.Second)
		check("after a discard", 110, 100, 10, 0)
		end()
	})
}

// TestReplayBesideWaits checks that dead letters are replayed while batches of the route wait for a
// retry, and that these batches are delivered afterwards, each once.
func TestReplayBesideWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down, refuses atomic.Bool
		down.Store(true)
		refuses.Store(true)
		sink := &fakeSink{workers: 2}
		sink.deliver = func(_ context.Context, a stream.Attempt) error {
			text := string(a.Value.AppendRaw(nil))
			switch {
			case refuses.Load() && strings.Contains(text, "7\n"):
				return &flow.Rejected{Err: errors.New("400 unlucky")}
			case down.Load() && strings.Contains(text, "3\n"):
				return errors.New("500")
			}
			return nil
		}
		r := config.DefaultRoute("r", "/state")
		r.Sink, r.Retry = use(stream.SinkRole, sink), retrying(time.Hour).Retry
		m := vfstest.New()
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(100), size: 1}}
		e, end := runReplayed(t, m, source, r)
		refuses.Store(false)
		if s := e.statusWithoutTree().Routes[0]; s.Waiting != 10 || s.Dead != 10 {
			t.Fatalf("%d waiting, %d dead; want 10 and 10", s.Waiting, s.Dead)
		}
		result, err := e.ReplayLetters(t.Context(), "p", "r", deadletter.Filter{}, false)
		if err != nil || result.Letters != 10 || result.Delivered != 10 {
			t.Errorf("a replay: %+v, %v", result, err)
		}
		time.Sleep(time.Second)
		s := e.statusWithoutTree().Routes[0]
		if conserved(t, s); s.ReadRecords != 100 || s.Waiting != 10 || s.Delivered != 80 {
			t.Errorf("after the replay: %d read, %d waiting, %d delivered; want 100, 10, 80",
				s.ReadRecords, s.Waiting, s.Delivered)
		}
		down.Store(false)
		time.Sleep(3 * time.Hour)
		s = e.statusWithoutTree().Routes[0]
		if conserved(t, s); s.Waiting != 0 || s.Delivered != 90 {
			t.Errorf("at the end: %d waiting, %d delivered; want 0 and 90", s.Waiting, s.Delivered)
		}
		end()
		if len(sink.got) != 100 {
			t.Errorf("%d records arrived, want 100", len(sink.got))
		}
	})
}

// closedSink is a parkingSink with a store that keeps its counts while the sink is closed. Open
// fails while the field fails is set.
type closedSink struct {
	parkingSink
	accepted      atomic.Int64 // number of parked records
	fails, closed atomic.Bool
	kept          atomic.Int64 // accepted when the sink was closed
}

// Open implements stream.Sink.
func (s *closedSink) Open(ctx context.Context, o stream.SinkOptions) error {
	if s.fails.Load() {
		return errors.New("the disk is full")
	}
	s.closed.Store(false)
	return s.parkingSink.Open(ctx, o)
}

// Close implements stream.Sink.
func (s *closedSink) Close() error {
	if !s.closed.Swap(true) {
		s.kept.Store(s.accepted.Load())
	}
	return s.parkingSink.Close()
}

// Parked implements stream.ParkingSink.
func (s *closedSink) Parked() stream.ParkedCounts {
	if s.closed.Load() {
		return stream.ParkedCounts{Waiting: s.kept.Load()}
	}
	return stream.ParkedCounts{Waiting: s.accepted.Load()}
}

// TestParkedWhileClosed checks that records that a sink has parked (stored for a later delivery)
// never count as delivered. This must hold even while the sink of a restarting route cannot be
// opened.
func TestParkedWhileClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &closedSink{parkingSink: parkingSink{fakeSink: &fakeSink{}}}
		sink.deliver = func(_ context.Context, a stream.Attempt) error {
			sink.accepted.Add(int64(strings.Count(string(a.Value.AppendRaw(nil)), "\n")))
			return nil
		}
		r := config.DefaultRoute("r", "/state")
		r.Sink = use(stream.SinkRole, sink)
		source := &fakeSource{lines: numbered(100), size: 1}
		e, end := runReplayed(t, vfstest.New(), source, r)
		check := func(when, health string) {
			t.Helper()
			s := e.statusWithoutTree().Routes[0]
			conserved(t, s)
			if s.Health != health || s.ReadRecords != 100 || s.Parked != 100 || s.Delivered != 0 {
				t.Errorf("%s: %s, %d read, %d parked, %d delivered; want %s, 100, 100 and 0",
					when, s.Health, s.ReadRecords, s.Parked, s.Delivered, health)
			}
		}
		check("before", healthRunning)
		sink.fails.Store(true)
		e.pipelines()[0].routes()[0].route.host.stop(errors.New("struck"))
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			check("while the sink cannot be opened", healthRestarting)
		}
		sink.fails.Store(false)
		time.Sleep(time.Minute)
		check("at the end", healthRunning)
		end()
	})
}

// TestParkedLettersWhileClosed checks a route that cannot be opened after a replay has parked its
// dead letters (stored them for a later delivery). They must never count as delivered. Once the
// route has opened, they must count as read and parked.
func TestParkedLettersWhileClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		refuses.Store(true)
		sink := &closedSink{parkingSink: parkingSink{fakeSink: &fakeSink{}}}
		sink.deliver = func(_ context.Context, a stream.Attempt) error {
			text := string(a.Value.AppendRaw(nil))
			if refuses.Load() && strings.Contains(text, "7\n") {
				return &flow.Rejected{Err: errors.New("400 unlucky")}
			}
			n := sink.accepted.Add(int64(strings.Count(text, "\n")))
			sink.fails.Store(n == 100) // for the route, after the replay
			return nil
		}
		r := config.DefaultRoute("r", "/state")
		r.Sink = use(stream.SinkRole, sink)
		source := &fakeSource{lines: numbered(100), size: 1}
		e, end := runReplayed(t, vfstest.New(), source, r)
		refuses.Store(false)
		result, err := e.ReplayLetters(t.Context(), "p", "r", deadletter.Filter{}, false)
		if err != nil || result.Parked != 10 {
			t.Errorf("a replay: %+v, %v", result, err)
		}
		for range 1000 {
			s := e.statusWithoutTree().Routes[0]
			if conserved(t, s); s.Delivered != 0 || s.Dead != 10 {
				t.Fatalf("before the route has opened: %d delivered, %d dead; want 0 and 10",
					s.Delivered, s.Dead)
			}
			time.Sleep(10 * time.Millisecond)
		}
		sink.fails.Store(false)
		time.Sleep(time.Minute)
		s := e.statusWithoutTree().Routes[0]
		if conserved(t, s); s.ReadRecords != 110 || s.Parked != 100 || s.Delivered != 0 {
			t.Errorf("at the end: %d read, %d parked, %d delivered; want 110, 100 and 0",
				s.ReadRecords, s.Parked, s.Delivered)
		}
		end()
	})
}
