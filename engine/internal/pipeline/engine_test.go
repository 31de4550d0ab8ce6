package pipeline

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func conserved(t *testing.T, s status.Route) {
	t.Helper()
	if s.ReadRecords != s.Delivered+s.Dead+s.Dropped+s.InFlight+s.Waiting+s.Parked {
		t.Errorf("%s/%s: %d read, %d delivered + %d dead + %d dropped + %d in flight + %d waiting + "+
			"%d parked", s.Pipeline, s.Name, s.ReadRecords, s.Delivered, s.Dead, s.Dropped,
			s.InFlight, s.Waiting, s.Parked)
	}
}

// TestRoutesAreIndependent checks that a route delivers everything although another route of the
// same source fails. The processors drop and dead-letter records, and every record is accounted
// for. The engine does not call the source's Finish, because the failed route has not settled the
// partitions.
func TestRoutesAreIndependent(t *testing.T) {
	m := vfstest.New()
	source := &fakeSource{lines: numbered(1000), size: 7}
	good := &fakeSink{workers: 3}
	change := fakeProcessor(func(b *stream.Batch) {
		b.Split()
		for i := range b.Records {
			switch text := string(b.Text(i)); {
			case strings.HasSuffix(text, "3"):
				b.Drop(i)
			case strings.HasSuffix(text, "77"):
				b.DeadLetter(i, errors.New("ends in 77"))
			}
		}
	})
	broken := fakeProcessor(nil)
	e := fakeJob(t, m, Options{Once: true}, source,
		config.Route{Sink: use(stream.SinkRole, good), Processors: []config.Use{use(stream.ProcessorRole, change)}},
		config.Route{Sink: use(stream.SinkRole, &fakeSink{}),
			Processors: []config.Use{use(stream.ProcessorRole, broken)}},
	)
	err := e.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "p/r1") || !strings.Contains(err.Error(), "no such processor") {
		t.Fatalf("Run = %v, want the second route's error", err)
	}
	s := e.statusWithoutTree().Routes[0]
	conserved(t, s)
	conserved(t, e.statusWithoutTree().Routes[1])
	if s.ReadRecords != 1000 || s.Delivered != 890 || s.Dropped != 100 || s.Dead != 10 {
		t.Errorf("read %d, delivered %d, dropped %d, dead %d", s.ReadRecords, s.Delivered, s.Dropped, s.Dead)
	}
	if len(good.got) != 890 || slices.Contains(good.got, "line 13") || slices.Contains(good.got, "line 177") {
		t.Errorf("%d records arrived", len(good.got))
	}
	letters, err := m.ReadFile("/state/dead/p.r0.ndjson")
	if err != nil || strings.Count(string(letters), "\n") != 10 ||
		!strings.Contains(string(letters), `"reason":"ends in 77"`) {
		t.Errorf("dead letters (%v): %.300s", err, letters)
	}
	if len(source.finished) != 0 {
		t.Errorf("the source finished %v although a route had not", source.finished)
	}
}

// TestResumeAndFinish checks that a run resumes at the position at which the previous run stopped,
// and that the source finishes the partition once.
func TestResumeAndFinish(t *testing.T) {
	m := vfstest.New()
	source := &fakeSource{lines: numbered(500), size: 10}
	var seen atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	first := &fakeSink{deliver: func(_ context.Context, a stream.Attempt) error {
		if seen.Add(1) == 20 {
			stop()
		}
		return nil
	}}
	if err := fakeJob(t, m, Options{Once: true}, source,
		config.Route{Sink: use(stream.SinkRole, first)}).Run(ctx); err == nil {
		t.Fatal("a run that was stopped says that all is well")
	}
	second := &fakeSink{}
	e := fakeJob(t, m, Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, second)})
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := append(slices.Clone(first.got), second.got...)
	slices.Sort(all)
	want := numbered(500)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("%d records in the first run, %d in the second, want 500 in all, each once",
			len(first.got), len(second.got))
	}
	if !slices.Equal(source.finished, []string{"fake"}) {
		t.Errorf("finished %v, want the partition once", source.finished)
	}
	third := &fakeSink{}
	e = fakeJob(t, m, Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, third)})
	if err := e.Run(t.Context()); err != nil || len(third.got) > 0 {
		t.Errorf("the third run: %v, %d records", err, len(third.got))
	}
	if got := e.statusWithoutTree().Routes[0]; got.ReadRecords != 0 || got.ReplayBytes != 0 {
		t.Errorf("the third run read %d records; %d bytes would be repeated", got.ReadRecords, got.ReplayBytes)
	}
}

// TestDrainFinishesInFlightBatches checks that a drain waits for in-flight batches. If they are not
// delivered within its maximum time, the drain gives up.
func TestDrainFinishesInFlightBatches(t *testing.T) {
	for _, c := range []struct {
		name     string
		delivery time.Duration
		took     time.Duration
		ok       bool
	}{{"in time", 10 * time.Second, 10 * time.Second, true}, {"too slow", time.Hour, 30 * time.Second, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &fakeSink{deliver: func(ctx context.Context, a stream.Attempt) error {
					wait := time.NewTimer(c.delivery)
					defer wait.Stop()
					select {
					case <-wait.C:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}}
				e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{lines: numbered(3), size: 1},
					config.Route{Sink: use(stream.SinkRole, sink)})
				ended := make(chan error)
				go func() { ended <- e.Run(t.Context()) }()
				time.Sleep(time.Second) // the first of three is in flight
				start := time.Now()
				e.Drain()
				err := <-ended
				took := time.Since(start)
				s := e.statusWithoutTree().Routes[0]
				conserved(t, s)
				if c.ok != (err == nil) || !c.ok && !strings.Contains(err.Error(), "draining took longer than 30s") {
					t.Errorf("Run = %v", err)
				}
				if took < c.took-time.Second || took > 3*c.took {
					t.Errorf("draining took %v, want about %v", took, c.took)
				}
				if c.ok && s.Delivered != s.ReadRecords {
					t.Errorf("%d of %d records that were read are delivered", s.Delivered, s.ReadRecords)
				}
			})
		})
	}
}

// TestStallEndsAFiniteRun checks that a finite run with a worker that never delivers ends after
// Options.Stall, with the worker's last error.
func TestStallEndsAFiniteRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			return errors.New("503 Service Unavailable")
		}}
		e := fakeJob(t, vfstest.New(), Options{Once: true, Stall: 5 * time.Minute},
			&fakeSource{lines: numbered(30), size: 10},
			config.Route{Sink: use(stream.SinkRole, sink)})
		start := time.Now()
		err := e.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "nothing was delivered for 5m0s") ||
			!strings.Contains(err.Error(), "503 Service Unavailable") {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(start); took < 5*time.Minute || took > 6*time.Minute {
			t.Errorf("it took %v", took)
		}
		s := e.statusWithoutTree().Routes[0]
		conserved(t, s)
		if s.Dead != 0 || s.Delivered != 0 {
			t.Errorf("an outage: %d dead, %d delivered; want nothing settled", s.Dead, s.Delivered)
		}
	})
}

// TestStallNamesTheProcessor checks a finite run in which a processor works on one batch for too
// long. The run ends with an error that names the processor.
func TestStallNamesTheProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &steps{took: 10 * time.Minute, step: func(*stream.Batch, int) {}}
		e := fakeJob(t, vfstest.New(), Options{Once: true, Stall: 5 * time.Minute},
			&fakeSource{lines: numbered(30), size: 10},
			config.Route{Sink: use(stream.SinkRole, &fakeSink{}), Processors: []config.Use{s.use()}})
		err := e.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(),
			"processor 1, "+s.use().Component.Name+" has worked on one batch for 5m") {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestRefusedRecordIsFound checks that a refused record is found by halving its batch, and is
// dead-lettered with the name of the refusing worker. All other records arrive.
func TestRefusedRecordIsFound(t *testing.T) {
	m := vfstest.New()
	sink := &fakeSink{deliver: func(_ context.Context, a stream.Attempt) error {
		if strings.Contains(string(a.Value.AppendRaw(nil)), "line 137\n") {
			return &flow.Rejected{Err: errors.New("422: line 137 is unlucky")}
		}
		return nil
	}}
	e := fakeJob(t, m, Options{Once: true}, &fakeSource{lines: numbered(400), size: 100},
		config.Route{Sink: use(stream.SinkRole, sink)})
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := e.statusWithoutTree().Routes[0]
	conserved(t, s)
	if s.Delivered != 399 || s.Dead != 1 || len(sink.got) != 399 {
		t.Errorf("delivered %d (%d arrived), dead %d", s.Delivered, len(sink.got), s.Dead)
	}
	letters, err := m.ReadFile("/state/dead/p.r0.ndjson")
	if err != nil || !strings.Contains(string(letters), `"worker":"worker-0"`) ||
		!strings.Contains(string(letters), "line 137 is unlucky") {
		t.Errorf("dead letters (%v): %s", err, letters)
	}
}

// TestGuardStopsARoute checks that the guard stops a route that dead-letters all records.
func TestGuardStopsARoute(t *testing.T) {
	sink := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
		return &flow.Rejected{Err: errors.New("400")}
	}}
	e := fakeJob(t, vfstest.New(), Options{Once: true}, &fakeSource{lines: numbered(100_000), size: 50},
		config.Route{Sink: use(stream.SinkRole, sink)})
	err := e.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "stopped by the guard") {
		t.Fatalf("Run = %v", err)
	}
	s := e.statusWithoutTree().Routes[0]
	conserved(t, s)
	if s.Dead > 1000 {
		t.Errorf("%d records were dead before the guard stopped the route", s.Dead)
	}
}

// TestGuardToleratesRefusedRest checks a run in which all records of the first batch are refused,
// after an earlier run has delivered the data before it. After a kill, this batch may be the rest
// of a larger one. The guard must not stop the route because of it.
func TestGuardToleratesRefusedRest(t *testing.T) {
	sink := &fakeSink{deliver: func(_ context.Context, a stream.Attempt) error {
		if bytes.Contains(a.Value.Data, []byte("line 100\n")) {
			return &flow.Rejected{Err: errors.New("400")}
		}
		return nil
	}}
	m := vfstest.New()
	for _, source := range []*fakeSource{
		{lines: numbered(100), size: 50},
		{lines: numbered(150), size: 1}, // the first batch is one record, which is refused
	} {
		e := fakeJob(t, m, Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink)})
		if err := e.Run(t.Context()); err != nil {
			t.Fatalf("Run with %d lines: %v", len(source.lines), err)
		}
	}
	if len(sink.got) != 149 {
		t.Errorf("%d records arrived, want 149", len(sink.got))
	}
}

// TestSourceErrorComesLast checks that the records that were read before the source failed are
// delivered before the route ends with the source's error.
func TestSourceErrorComesLast(t *testing.T) {
	m := vfstest.New()
	sink := &fakeSink{}
	e := fakeJob(t, m, Options{Once: true}, &fakeSource{lines: numbered(95), size: 10, err: errors.New("disk on fire")},
		config.Route{Sink: use(stream.SinkRole, sink)})
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Fatalf("Run = %v", err)
	}
	if len(sink.got) != 95 {
		t.Errorf("%d of 95 records arrived before the error ended the route", len(sink.got))
	}
	next := &fakeSink{}
	e = fakeJob(t, m, Options{Once: true}, &fakeSource{lines: numbered(100), size: 10},
		config.Route{Sink: use(stream.SinkRole, next)})
	if err := e.Run(t.Context()); err != nil || len(next.got) != 5 {
		t.Errorf("the next run delivered %d records, want the 5 new ones: %v", len(next.got), err)
	}
}

// TestStateIsLocked checks the error of a second process with the same state directory. The error
// names the process that owns the directory.
func TestStateIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		source := &fakeSource{lines: numbered(1), size: 1}
		a := fakeJob(t, m, Options{}, source, config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
		b := fakeJob(t, m, Options{}, source, config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
		ended := make(chan error)
		go func() { ended <- a.Run(t.Context()) }()
		synctest.Wait()
		if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "/state") ||
			!strings.Contains(err.Error(), "penstock, process") {
			t.Errorf("the second Run = %v, want an error that names the directory and the holder", err)
		}
		a.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
