package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// fixture is a source with a host. A test sets the routes of the host.
type fixture struct {
	t      *testing.T
	source *memory.Source
	host   *streamtest.Quiet
	made   stream.Source
}

func newFixture(t *testing.T, o memory.SourceOptions, routes ...string) *fixture {
	w := &fixture{t: t, source: memory.NewSource(o)}
	w.host = streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	w.host.SetRoutes(routes...)
	w.made = newComponent[stream.Source](t, w.source.Component(), w.host)
	return w
}

// open opens a reader of a route at a mark. If m is nil, the route starts without a mark.
func (w *fixture) open(route string, m *stream.Mark) stream.Reader {
	w.t.Helper()
	r, err := w.made.Open(w.t.Context(), stream.OpenOptions{
		Route: route,
		Resume: func(string) (stream.Mark, bool) {
			if m == nil {
				return stream.Mark{}, false
			}
			return *m, true
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// read returns the texts of one batch, and the progress of a route after it has settled the batch.
func (w *fixture) read(r stream.Reader) ([]string, stream.Mark) {
	w.t.Helper()
	b := stream.NewBatch(stream.BatchLimits{Records: 10})
	if err := r.Read(w.t.Context(), b); err != nil && err != io.EOF {
		w.t.Fatal(err)
	}
	b.Split()
	var texts []string
	for i := range b.Records {
		texts = append(texts, string(b.Text(i)))
	}
	if len(b.Spans) == 0 {
		return texts, stream.Mark{}
	}
	return texts, stream.Mark{Part: *b.Spans[0].Part, Watermark: b.Spans[0].To}
}

func (w *fixture) commit(r stream.Reader, m stream.Mark) {
	w.t.Helper()
	if err := r.Commit(w.t.Context(), []stream.Mark{m}); err != nil {
		w.t.Fatal(err)
	}
}

// begun calls f in a goroutine. The returned function reports whether f has returned, and its
// error.
func begun(f func() error) func() (bool, error) {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	var err error
	over := false
	return func() (bool, error) {
		synctest.Wait()
		select {
		case err = <-ended:
			over = true
		default:
		}
		return over, err
	}
}

func want(t *testing.T, what string, call func() (bool, error), over bool, is error) {
	t.Helper()
	if got, err := call(); got != over || !errors.Is(err, is) {
		t.Errorf("%s: returned %v with %v, want %v with %v", what, got, err, over, is)
	}
}

var kib = bytes.Repeat([]byte("k"), 1<<10)

// TestPushWaitsForRoom checks a full source with a route that has not opened yet.
func TestPushWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, memory.SourceOptions{MaxBytes: 4500}, "p/a", "p/b")
		for range 4 {
			if err := w.source.Push(t.Context(), kib); err != nil {
				t.Fatal(err)
			}
		}
		large := begun(func() error { return w.source.Push(t.Context(), kib, kib) })
		want(t, "a push into a full source", large, false, nil)
		small := begun(func() error { return w.source.Push(t.Context(), []byte("small")) })
		want(t, "a small push behind a large one", small, false, nil)
		settled := begun(func() error { return w.source.Settled(t.Context()) })

		a := w.open("p/a", nil)
		texts, m := w.read(a)
		w.commit(a, m)
		want(t, "the push, with route b not open", large, false, nil)
		b := w.open("p/b", nil)
		other, _ := w.read(b)
		if len(texts) != 4 || !slices.Equal(texts, other) {
			t.Errorf("route a reads %d records, route b %d", len(texts), len(other))
		}
		want(t, "Settled, before b has settled", settled, false, nil)
		w.commit(b, m)
		want(t, "the large push", large, true, nil)
		want(t, "the small push", small, true, nil)
		want(t, "Settled", settled, true, nil)
		next, _ := w.read(a)
		if len(next) != 3 || next[2] != "small" {
			t.Errorf("route a goes on with %d records", len(next))
		}

		// Route b never commits again, and leaves the pipeline.
		_, m = w.read(b)
		w.commit(a, m)
		last := begun(func() error { return w.source.Send(t.Context(), kib, kib, kib) })
		want(t, "a push that waits for b", last, false, nil)
		w.host.SetRoutes("p/a")
		time.Sleep(2 * time.Second)
		_, m = w.read(a)
		want(t, "Send, before a has settled", last, false, nil)
		w.commit(a, m)
		want(t, "Send", last, true, nil)
	})
}

func TestPushErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, memory.SourceOptions{MaxBytes: 2500}, "p/a")
		if err := w.source.Push(t.Context(), kib, kib, kib); !errors.Is(err, memory.ErrTooLarge) {
			t.Errorf("too much at once: %v", err)
		}
		if err := w.source.Push(t.Context(), kib, kib); err != nil {
			t.Error(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := begun(func() error { return w.source.Push(ctx, kib) })
		want(t, "a push into a full source", first, false, nil)
		cancel(gone)
		want(t, "a push whose context ends", first, true, gone)
		if err := w.source.Push(ctx, nil); !errors.Is(err, gone) {
			t.Errorf("a push whose context has ended: %v", err)
		}
		second := begun(func() error { return w.source.Push(t.Context(), kib) })
		want(t, "another push", second, false, nil)
		_ = w.source.Close()
		want(t, "a push that waits when the source is closed", second, true, memory.ErrClosed)
		if err := w.source.Push(t.Context()); !errors.Is(err, memory.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		r := w.open("p/a", nil)
		b := stream.NewBatch(stream.BatchLimits{})
		if err := r.Read(t.Context(), b); err != io.EOF || b.Origins != 2 {
			t.Errorf("the last batch: %v, %d records", err, b.Origins)
		}
		if _, err := w.made.Open(t.Context(), stream.OpenOptions{
			Route: "q/a", Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		}); err == nil || !strings.Contains(err.Error(), `feeds pipeline "p" already`) {
			t.Errorf("another pipeline: %v", err)
		}
	})
}

// TestRestartCutsAgain first reads batches while records arrive, so that the ends of the batches
// depend on the arrival. Then it starts readers at every position, when all records have arrived.
// They must end their batches at the same places as before.
func TestRestartCutsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, memory.SourceOptions{}, "p/a")
		r := w.open("p/a", nil)
		var ends []int64
		for i := range 30 {
			var records [][]byte
			for k := range 1 + i*7%23 {
				records = append(records, fmt.Appendf(nil, "push %d record %d", i, k))
			}
			if err := w.source.Push(t.Context(), records...); err != nil {
				t.Fatal(err)
			}
			if i%3 > 0 {
				_, m := w.read(r)
				ends = append(ends, m.Watermark.Num)
			}
		}
		for n := range ends[1:] {
			again := w.open("p/a", &stream.Mark{Watermark: stream.Position{Num: ends[n]}})
			for _, end := range ends[n+1:] {
				if _, m := w.read(again); m.Watermark.Num != end {
					t.Fatalf("from %d on: a batch ends at %d, want %d", ends[n], m.Watermark.Num, end)
				}
			}
		}
	})
}

// TestFreedRecordsAreCovered opens two routes after records were freed: a new route, and one with
// an older checkpoint. Both must read empty spans for the freed records. Only the second route must
// log them as lost.
func TestFreedRecordsAreCovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, memory.SourceOptions{}, "p/a")
		a := w.open("p/a", nil)
		for _, text := range []string{"one", "two", "three"} {
			if err := w.source.Push(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
			if text != "three" {
				_, m := w.read(a)
				w.commit(a, m)
			}
		}
		w.host.SetRoutes("p/a", "p/b")
		above := []stream.Range{{From: stream.Position{Num: 4}, To: stream.Position{Num: 6}}}
		for _, m := range []*stream.Mark{nil, {Above: above}} {
			r := w.open("p/b", m)
			at := int64(0)
			for at < 14 {
				b := stream.NewBatch(stream.BatchLimits{})
				if err := r.Read(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				s := b.Spans[0]
				if m != nil && at == 4 {
					at = 6
				}
				if s.From.Num != at || s.To.Num < 14 != (len(b.Data) == 0) {
					t.Errorf("span %v with %q, want one from %d", s.Range, b.Data, at)
				}
				at = s.To.Num
			}
			if lost := strings.Contains(w.host.Logged(), "records lost"); lost != (m != nil) {
				t.Errorf("mark %v: the log says that records are lost: %v", m, lost)
			}
		}
	})
}

func TestLingerAndEarlierProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, memory.SourceOptions{}, "p/a")
		r, err := w.made.Open(t.Context(), stream.OpenOptions{
			Route: "p/a", Linger: time.Second,
			Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
			Known: slices.Values([]stream.Mark{
				{Part: stream.Partition{ID: "memory-OF-A-PROCESS-THAT-IS-GONE"}},
				{Part: stream.Partition{ID: "a file"}},
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go func() {
			for _, text := range []string{"one", "two"} {
				time.Sleep(600 * time.Millisecond)
				_ = w.source.Push(t.Context(), []byte(text))
			}
		}()
		texts, _ := w.read(r)
		if took := time.Since(began); !slices.Equal(texts, []string{"one", "two"}) || took != 1600*time.Millisecond {
			t.Errorf("after %v: %q", took, texts)
		}
		if left := r.(stream.Estimator).Remaining(); left != 0 {
			t.Errorf("Left = %d", left)
		}
		f := r.(stream.PartitionTracker)
		if gone := f.Deleted(); !slices.Equal(gone, []string{"memory-OF-A-PROCESS-THAT-IS-GONE"}) ||
			f.Deleted() != nil {
			t.Errorf("Forget = %q", gone)
		}
	})
}

// TestLoopThatIsLeft checks that a batch is delivered again if a loop ends in the middle of it.
func TestLoopThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := memory.NewSink(memory.SinkOptions{})
		s := newComponent[stream.Sink](t, sink.Component(), streamtest.NewHost(t))
		var lanes []stream.Lane
		if err := s.Open(t.Context(), stream.SinkOptions{Lanes: func(l []stream.Lane) { lanes = l }}); err != nil {
			t.Fatal(err)
		}
		batch := streamtest.Lines("one", "two", "three")
		batch.Split()
		batch.Drop(1)
		deliver := func() error {
			_, err := lanes[0].Worker.Deliver(t.Context(), stream.Attempt{Value: batch})
			return err
		}
		if _, throttled := errors.AsType[*stream.Throttled](deliver()); !throttled {
			t.Error("without a loop it is not throttled")
		}
		first := begun(deliver)
		for r := range sink.Records(t.Context()) {
			if string(r.Data) == "three" {
				break
			}
		}
		if over, err := first(); !over || err == nil {
			t.Errorf("the batch whose loop was left: %v, %v", over, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		second := begun(deliver)
		var got []string
		loop := begun(func() error {
			for r := range sink.Records(ctx) {
				got = append(got, r.ID+" "+string(r.Data))
			}
			return nil
		})
		want(t, "the batch that comes again", second, true, nil)
		cancel()
		want(t, "the loop", loop, true, nil)
		if !slices.Equal(got, []string{"a@4 one", "a@14 three"}) {
			t.Errorf("got %q", got)
		}
	})
}
