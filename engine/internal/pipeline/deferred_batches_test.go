package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// rangeSource is a fakeSource with a reader that can read ranges again.
type rangeSource struct {
	*fakeSource
	mu     sync.Mutex // guards the fields below
	reread int        // ranges
	gone   bool
}

// Open implements stream.Source.
func (s *rangeSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r, err := s.fakeSource.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &rangeReader{r.(*fakeReader), s}, nil
}

type rangeReader struct {
	*fakeReader
	s *rangeSource
}

// CanReadRanges implements stream.RangeReader.
func (r *rangeReader) CanReadRanges(id string) bool { return id == "fake" }

// ReadRanges implements stream.RangeReader.
func (r *rangeReader) ReadRanges(_ context.Context, b *stream.Batch, _ stream.Partition,
	ranges []stream.Range) error {
	r.s.mu.Lock()
	gone := r.s.gone
	r.s.reread += len(ranges)
	r.s.mu.Unlock()
	if gone {
		return stream.ErrRangeGone
	}
	for _, rg := range ranges {
		part := &fakeReader{s: r.fakeReader.s, part: r.part, at: int(rg.From.Num)}
		size := int(rg.To.Num - rg.From.Num)
		one := &stream.Batch{}
		part.s = &fakeSource{lines: part.s.lines, size: size}
		if err := part.Read(context.Background(), one); err != nil {
			return err
		}
		off := uint32(len(b.Data))
		for _, rec := range one.Records {
			rec.Off += off
			rec.Span = uint32(len(b.Spans))
			b.Records = append(b.Records, rec)
		}
		b.Data = append(b.Data, one.Data...)
		b.Spans = append(b.Spans, one.Spans[0])
		b.Origins += one.Origins
	}
	return nil
}

// refusals records the attempts of the records that a sink refuses, by record.
type refusals struct {
	mu     sync.Mutex // guards the fields below
	at     map[string][]time.Time
	number map[string][]int
	fails  func(line string, attempts int) bool
}

func (f *refusals) deliver(_ context.Context, a stream.Attempt) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.Value.Split()
	failed := false
	for i := range a.Value.Records {
		line := string(a.Value.Text(i))
		if len(f.at[line]) > 0 || f.fails(line, 0) {
			f.at[line] = append(f.at[line], time.Now())
			f.number[line] = append(f.number[line], a.Number)
			failed = failed || f.fails(line, len(f.at[line]))
		}
	}
	if failed {
		return errors.New("500")
	}
	return nil
}

func retrying(wait time.Duration) config.Route {
	r := config.Route{}
	r.Retry = config.DefaultRoute("r0", "/state").Retry
	r.Retry.Backoff, r.Retry.Base = "fixed", wait
	return r
}

// TestWaitsHoldNoData is about batches that wait a long time. They are read again when they are
// due. Meanwhile reading continues, and the records read always equal the sum of the outcomes.
// After a restart of the process, no batch is lost, no wait begins again, and the count of attempts
// continues. The source finishes the partition only when none of its batches waits any more.
func TestWaitsHoldNoData(t *testing.T) {
	for _, processors := range []int{0, 1} {
		t.Run(fmt.Sprint(processors, " processors"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { waitsHoldNoData(t, processors) })
		})
	}
}

func waitsHoldNoData(t *testing.T, processors int) {
	const lines, wait = 3000, time.Minute
	m := vfstest.New()
	source := &rangeSource{fakeSource: &fakeSource{lines: numbered(lines), size: 3}}
	fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
	fails.fails = func(line string, attempts int) bool {
		return strings.HasSuffix(line, "7") &&
			attempts < 3
	}
	route := retrying(wait)
	for range processors {
		route.Processors = append(route.Processors, use(stream.ProcessorRole, dropping("5")))
	}
	var got []string
	boots := 0
	run := func(d time.Duration, once bool) {
		boots++ // another boot; otherwise due times refer to the real boot clock
		sink := &fakeSink{workers: 2, deliver: fails.deliver}
		route.Sink = use(stream.SinkRole, sink)
		o := Options{Once: once, Boot: fmt.Sprint("boot-", boots), Stall: 48 * time.Hour}
		e := jobOf(t, m, o, use(stream.SourceRole, source), route)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		timer := time.NewTimer(d)
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			case <-timer.C:
				stop()
				<-ended
				running = false
			case <-time.After(time.Second):
			}
			accounted(t, e, processors == 0)
		}
		got = append(got, sink.got...)
	}
	for range 4 {
		run(27*time.Second, false)
	}
	if len(source.finished) > 0 {
		t.Error("the source finished a partition of which something waits")
	}
	if source.reread == 0 {
		t.Error("nothing was read again")
	}
	run(24*time.Hour, true)
	want := numbered(lines)
	if processors > 0 {
		want = slices.DeleteFunc(want, func(s string) bool { return strings.HasSuffix(s, "5") })
	}
	if processors == 0 { // otherwise a batch also has the bytes of its dropped record
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%d records arrived, want %d, each once", len(got), len(want))
		}
	}
	if !slices.Equal(source.finished, []string{"fake"}) {
		t.Errorf("finished %v, want the partition once", source.finished)
	}
	fails.check(t, wait)
}

// check checks the times and the numbers of the attempts. It checks no wait before the second
// attempt, because another worker makes that attempt at once.
func (f *refusals) check(t *testing.T, wait time.Duration) {
	t.Helper()
	for line, at := range f.at {
		for i := range at {
			if f.number[line][i] != i+1 {
				t.Fatalf("%s: attempts are counted %v", line, f.number[line])
			}
			if gap := at[i].Sub(at[max(0, i-1)]); i > 1 && gap < wait {
				t.Fatalf("%s: attempt %d came %v after the one before, want at least %v", line, i+1,
					gap, wait)
			}
		}
	}
}

// dropping drops the records with this suffix.
func dropping(suffix string) fakeProcessor {
	return func(b *stream.Batch) {
		b.Split()
		for i := range b.Records {
			if strings.HasSuffix(string(b.Text(i)), suffix) {
				b.Drop(i)
			}
		}
	}
}

// accounted checks that the counts of a route balance. If exact is set, it also checks that the
// sender and the store of waiting batches together have all unsettled records, except for up to 6
// records that are being read.
func accounted(t *testing.T, e *Engine, exact bool) {
	t.Helper()
	synctest.Wait()
	s := e.statusWithoutTree().Routes[0]
	conserved(t, s)
	if s.InFlight < 0 || s.Waiting < 0 {
		t.Errorf("%d in flight, %d waiting", s.InFlight, s.Waiting)
	}
	r := e.pipelines()[0].routes()[0].route
	if s.Health != healthRunning || r.waits.store == nil || r.sender.sender == nil || !exact {
		return
	}
	status, _ := r.sender.sender.Status()
	const ahead = 6 // records of a batch that is ready, and of one that is being read
	if n := int64(status.WaitingCost + status.InFlightCost); n > s.InFlight+s.Waiting ||
		n < s.InFlight+s.Waiting-ahead {
		t.Errorf("the sender and the store account for %d records, the books for %d in flight "+
			"and %d waiting", n, s.InFlight, s.Waiting)
	}
}

// TestWaitsOfLostData deletes records from the source while they wait for a retry. They must be
// reported as lost and must no longer count as read, and the route must continue.
func TestWaitsOfLostData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(100), size: 1}}
		fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
		fails.fails = func(line string, _ int) bool { return strings.HasSuffix(line, "7") }
		route := retrying(time.Minute)
		route.Sink = use(stream.SinkRole, &fakeSink{deliver: fails.deliver})
		e := jobOf(t, m, Options{}, use(stream.SourceRole, source), route)
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- e.Run(ctx) }()
		time.Sleep(30 * time.Second)
		source.mu.Lock()
		source.gone = true
		source.mu.Unlock()
		time.Sleep(5 * time.Minute)
		s := e.statusWithoutTree().Routes[0]
		conserved(t, s)
		if s.Delivered != 90 || s.ReadRecords != 90 || s.Counters["waiting_lost"] != 10 {
			t.Errorf("%d delivered of %d, %d lost; want 90, 90, 10", s.Delivered, s.ReadRecords,
				s.Counters["waiting_lost"])
		}
		stop()
		<-ended
	})
}

// TestFiniteRunLosesWaits deletes waiting records from the source of a finite run, which must fail.
func TestFiniteRunLosesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(100), size: 1}, gone: true}
		fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
		fails.fails = func(line string, _ int) bool { return strings.HasSuffix(line, "7") }
		route := retrying(time.Minute)
		route.Sink = use(stream.SinkRole, &fakeSink{deliver: fails.deliver})
		e := jobOf(t, vfstest.New(), Options{Once: true}, use(stream.SourceRole, source), route)
		err := e.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "are lost") {
			t.Errorf("a run that has lost records returned %v", err)
		}
		s := e.statusWithoutTree().Routes[0]
		if s.Delivered != 90 || s.Counters["waiting_lost"] != 10 {
			t.Errorf("%d delivered, %d lost", s.Delivered, s.Counters["waiting_lost"])
		}
	})
}

// TestFiniteRunDropsWaits checks a finite run in which batches wait for a retry, and a processor
// drops their records when they are read again. The run must end.
func TestFiniteRunDropsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(100), size: 1}}
		fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
		fails.fails = func(line string, _ int) bool { return strings.HasSuffix(line, "7") }
		route := retrying(time.Minute)
		began := time.Now()
		late := fakeProcessor(func(b *stream.Batch) {
			if time.Since(began) > 30*time.Second {
				dropping("7")(b)
			}
		})
		route.Processors = []config.Use{use(stream.ProcessorRole, late)}
		route.Sink = use(stream.SinkRole, &fakeSink{deliver: fails.deliver})
		e := jobOf(t, vfstest.New(), Options{Once: true}, use(stream.SourceRole, source), route)
		if err := e.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := e.statusWithoutTree().Routes[0]; s.Delivered != 90 || s.Dropped != 10 {
			t.Errorf("%d delivered, %d dropped; want 90 and 10", s.Delivered, s.Dropped)
		}
	})
}

// TestDrainLeavesWaits checks that a drain does not wait for batches that are due later, and that
// the next run delivers them.
func TestDrainLeavesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(50), size: 1}}
		fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
		fails.fails = func(line string, attempts int) bool {
			return strings.HasSuffix(line, "7") &&
				attempts < 2
		}
		route := retrying(time.Hour)
		sink := &fakeSink{deliver: fails.deliver}
		route.Sink = use(stream.SinkRole, sink)
		e := jobOf(t, m, Options{}, use(stream.SourceRole, source), route)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Minute)
		began := time.Now()
		e.Drain()
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("the drain took %v: %v", time.Since(began), err)
		}
		if s := e.statusWithoutTree().Routes[0]; s.Delivered != 45 || s.Waiting != 5 {
			t.Errorf("%d delivered, %d waiting; want 45 and 5", s.Delivered, s.Waiting)
		}
		e = jobOf(t, m, Options{Once: true, Stall: 48 * time.Hour}, use(stream.SourceRole, source),
			route)
		if err := e.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(sink.got) != 50 || time.Since(began) < 58*time.Minute {
			t.Errorf("%d records arrived after %v, want 50 after an hour", len(sink.got),
				time.Since(began))
		}
	})
}

// TestDrainOfFiniteRunWithWaits checks that a finite run counts as stopped, not finished, if it is
// drained while batches wait for a retry.
func TestDrainOfFiniteRunWithWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(50), size: 1}}
		fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
		fails.fails = func(line string, _ int) bool { return strings.HasSuffix(line, "7") }
		route := retrying(time.Hour)
		route.Sink = use(stream.SinkRole, &fakeSink{deliver: fails.deliver})
		e := jobOf(t, vfstest.New(), Options{Once: true, Stall: 48 * time.Hour}, use(stream.SourceRole, source), route)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Minute)
		e.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if s := e.statusWithoutTree().Routes[0]; s.Health != healthStopped || s.Waiting != 5 {
			t.Errorf("health %q with %d waiting records, want %q with 5", s.Health, s.Waiting, healthStopped)
		}
	})
}

// TestWaitsAreGuarded removes the store of waiting batches after the checkpoint has advanced beyond
// them. The next start must fail, because it would never deliver these batches.
func TestWaitsAreGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		source := &rangeSource{fakeSource: &fakeSource{lines: numbered(50), size: 1}}
		fails := &refusals{at: map[string][]time.Time{}, number: map[string][]int{}}
		fails.fails = func(line string, attempts int) bool { return strings.HasSuffix(line, "7") }
		route := retrying(time.Hour)
		route.Sink = use(stream.SinkRole, &fakeSink{deliver: fails.deliver})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_ = jobOf(t, m, Options{}, use(stream.SourceRole, source), route).Run(ctx)
		dir, err := m.OpenDir("/state/waiting/p.r0")
		if err != nil {
			t.Fatal(err)
		}
		entries, err := dir.Entries(".")
		if err != nil || len(entries) == 0 {
			t.Fatalf("%d files of waiting batches: %v", len(entries), err)
		}
		for _, e := range entries {
			if err := dir.Remove(e.Name); err != nil {
				t.Fatal(err)
			}
		}
		err = jobOf(t, m, Options{Once: true}, use(stream.SourceRole, source),
			route).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("a start without the waiting batches: %v", err)
		}
	})
}
