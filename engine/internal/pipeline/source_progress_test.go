package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestProgressOfRoutes checks that a source can ask for the progress of its routes while none of
// them can open. It gets the progress in the checkpoint.
func TestProgressOfRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		dir, err := m.MakeDir("/state", 0o700)
		if err != nil {
			t.Fatal(err)
		}
		store, _, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		mark := func(id string, at int64) []stream.Mark {
			return []stream.Mark{{Part: stream.Partition{ID: id}, Watermark: stream.Position{Num: at}}}
		}
		if err := errors.Join(
			store.Append("p/r0", mark("a", 1), nil),
			store.Append("p/r0", mark(deadletter.PartitionOf("a"), 1), nil),
			store.Append("p/r1", mark("b", 2), nil),
			store.Append("p/r1"+checkpoint.BootMark+"boot", mark("b", 3), nil), // not synced yet
			store.Append("p/r1"+checkpoint.BootMark+"earlier", mark("b", 4), nil),
			store.Close(), dir.Close()); err != nil {
			t.Fatal(err)
		}
		var failing atomic.Bool
		failing.Store(true)
		var got []string
		s := &hosted{fakeSource: &fakeSource{}}
		s.watch = func(ctx context.Context, h stream.SourceHost) error {
			for _, route := range []string{"p/r0", "p/r1", "p/r2"} {
				o, err := h.Progress(route)
				if err != nil {
					return err
				}
				got = append(got, o.Route)
				for m := range o.Known {
					stored, ok := o.Resume(m.Part.ID)
					got = append(got, fmt.Sprint(m.Part.ID, m.Watermark.Num, stored.Watermark.Num, ok))
				}
			}
			<-ctx.Done()
			return nil
		}
		e := jobOf(t, m, Options{Boot: "boot"}, s.use(),
			config.Route{Sink: flaky(&failing, &fakeSink{})}, config.Route{Sink: flaky(&failing, &fakeSink{})})
		if _, err := s.host.Progress("p/r0"); err == nil {
			t.Error("there is progress before the pipeline runs")
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Second)
		e.Drain()
		<-ended // the routes have failed
		if want := []string{"p/r0", "a1 1 true", "p/r1", "b3 3 true", "p/r2"}; !slices.Equal(got, want) {
			t.Errorf("Progress = %q, want %q", got, want)
		}
	})
}

// TestLedgerProgress checks that a source gets the latest saved progress if the sink has a ledger,
// and not that at the start of the run. By this progress, a source of files recognizes files that
// it needs to follow no longer.
func TestLedgerProgress(t *testing.T) {
	const size, records = 5, 20
	sink := &ledgerSink{fakeSink: &fakeSink{}, holds: heldParts("fake")}
	source := &fakeSource{lines: numbered(records), size: size}
	e := jobOf(t, vfstest.New(), Options{Once: true}, use(stream.SourceRole, source),
		config.Route{Sink: use(stream.SinkRole, sink)})
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, ok := e.pipes[0].slots[0].route.saver.markOf("fake")
	if !ok || got.Watermark.Num != records {
		t.Errorf("the progress is %+v, want that after %d records", got, records)
	}
}
