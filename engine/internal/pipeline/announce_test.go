package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// notedSource is a fakeSource with a reader that returns metadata for the progress of each
// partition. It records the arguments of Open.
type notedSource struct {
	*fakeSource
	known []stream.Mark
	read  func() // before each Read; nil: nothing happens
}

func (s *notedSource) use() config.Use {
	return config.Use{Component: stream.Component{
		Role: stream.SourceRole, Name: "fake", New: func(any, stream.Host) (any, error) { return s, nil },
	}}
}

// Open implements stream.Source.
func (s *notedSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	s.known = slices.Collect(o.Known)
	r, err := s.fakeSource.Open(ctx, o)
	return notedReader{r.(*fakeReader), s}, err
}

type notedReader struct {
	*fakeReader
	s *notedSource
}

// Read implements stream.Reader.
func (r notedReader) Read(ctx context.Context, b *stream.Batch) error {
	if r.s.read != nil {
		r.s.read()
	}
	return r.fakeReader.Read(ctx, b)
}

// Metadata implements stream.PartitionTracker.
func (notedReader) Metadata(m stream.Mark) string { return noteTo(m.Watermark.Num) }

// Deleted implements stream.PartitionTracker.
func (notedReader) Deleted() []string { return nil }

func noteTo(at int64) string { return fmt.Sprintf("read to %d", at) }

// hasAll reports whether each record has arrived exactly once, in any order. Empty lines do not
// count: a sink with a ledger gets the end of the data as a batch with an empty line.
func (s *fakeSink) hasAll(records []string) bool {
	got := slices.DeleteFunc(slices.Clone(s.got), func(line string) bool { return line == "" })
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(records)))
}

// ledgerSink keeps its own ledger, which holds only the watermark of one partition.
type ledgerSink struct {
	*fakeSink
	holds []stream.Mark
}

// Load implements stream.TransactionalSink.
func (s *ledgerSink) Load(context.Context) ([]stream.Mark, error) { return s.holds, nil }

// Store implements stream.TransactionalSink.
func (s *ledgerSink) Store(context.Context, []stream.Span) error { return nil }

// LedgerName implements stream.TransactionalSink.
func (s *ledgerSink) LedgerName() string { return "ledger of sink fake" }

// Prune implements stream.TransactionalSink.
func (s *ledgerSink) Prune(context.Context, []string) error { return nil }

// Compact implements stream.TransactionalSink.
func (s *ledgerSink) Compact(context.Context, []stream.Mark) error { return nil }

// killed returns the progress that the route's checkpoint would have if the process were killed
// now.
func killed(t *testing.T, m *vfstest.Mem) (marks []stream.Mark) {
	t.Helper()
	return killedBy(t, m, vfstest.DataAll)
}

// killedBy returns the progress in the checkpoint after a crash. The parameter left is the part of
// the unsynced data that survives the crash.
func killedBy(t *testing.T, m *vfstest.Mem, left vfstest.Data) (marks []stream.Mark) {
	t.Helper()
	dir, err := m.Crash(left, vfstest.NamesAll, 0).OpenDir("/state")
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := checkpoint.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range found.Routes {
		marks = append(marks, route.Marks...)
	}
	return marks
}

// TestFirstMarkIsSavedAhead checks that a new partition is saved in the checkpoint, once, before a
// sink with a ledger gets the partition's data. Otherwise the run after a kill would not know to
// which file the watermark in the ledger belongs. For sinks without a ledger, nothing is saved
// ahead, because their watermarks are in the checkpoint itself.
func TestFirstMarkIsSavedAhead(t *testing.T) {
	const size, records = 5, 20
	for _, ledgered := range []bool{true, false} {
		t.Run(fmt.Sprintf("ledgered %v", ledgered), func(t *testing.T) {
			m := vfstest.New()
			source := &notedSource{fakeSource: &fakeSource{lines: numbered(records), size: size}}
			sink := &fakeSink{}
			var what any = sink
			if ledgered {
				what = &ledgerSink{fakeSink: sink}
			}
			var mu sync.Mutex // batches are delivered concurrently
			deliveries := 0
			sink.deliver = func(context.Context, stream.Attempt) error {
				mu.Lock()
				defer mu.Unlock()
				deliveries++
				marks := killed(t, m)
				switch {
				case !ledgered && deliveries == 1 && len(marks) != 0:
					t.Errorf("%+v was saved, and nothing has settled", marks)
				case !ledgered:
				case len(marks) != 1 || marks[0].Part.ID != "fake" || marks[0].Part.Name != "fake":
					t.Errorf("delivery %d: the checkpoint has %+v, want the mark of the partition", deliveries, marks)
				case marks[0].Watermark.Num != 0 || marks[0].Metadata != noteTo(size):
					t.Errorf("delivery %d: the mark is %+v, want nothing settled, and the note "+
						"of the first batch", deliveries, marks[0])
				}
				return nil
			}
			route := config.Route{Sink: use(stream.SinkRole, what)}
			route.Checkpoint.Replay, route.Checkpoint.Sync = 1<<20, time.Hour
			if err := jobOf(t, m, Options{Once: true}, source.use(), route).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if deliveries < records/size || !sink.hasAll(source.lines) {
				t.Errorf("%q in %d deliveries", sink.got, deliveries)
			}
			if marks := killed(t, m); len(marks) != 1 || marks[0].Watermark.Num != records ||
				marks[0].Metadata != noteTo(records) {
				t.Errorf("in the end the checkpoint has %+v", marks)
			}
		})
	}
}

// TestKilledBeforeTheFirstSave checks a kill after the sink's commit and before the first save. The
// next run passes the partition to the source, with the watermark from the sink's ledger, and with
// the name and the metadata from the checkpoint.
func TestKilledBeforeTheFirstSave(t *testing.T) {
	const size, records = 5, 20
	m := vfstest.New()
	source := &notedSource{fakeSource: &fakeSource{lines: numbered(records), size: size}}
	sink := &ledgerSink{fakeSink: &fakeSink{}}
	var first sync.Once
	var left *vfstest.Mem
	sink.deliver = func(context.Context, stream.Attempt) error {
		first.Do(func() { left = m.Crash(vfstest.DataAll, vfstest.NamesAll, 0) })
		return nil
	}
	route := config.Route{Sink: use(stream.SinkRole, sink)}
	if err := jobOf(t, m, Options{Once: true}, source.use(), route).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	sink.holds = []stream.Mark{{Part: stream.Partition{ID: "fake"}, Watermark: stream.Position{Num: size}}}
	sink.got = slices.Clone(source.lines[:size])
	if err := jobOf(t, left, Options{Once: true}, source.use(), route).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := stream.Mark{
		Part: stream.Partition{ID: "fake", Name: "fake"}, Watermark: stream.Position{Num: size},
		Metadata: noteTo(size),
	}
	if len(source.known) != 1 || fmt.Sprint(source.known[0]) != fmt.Sprint(want) {
		t.Errorf("the source was told %+v, want %+v", source.known, want)
	}
	if !sink.hasAll(source.lines) {
		t.Errorf("the sink has %q", sink.got)
	}
}

// TestFirstMarkNotSaved checks that deliveries continue while the checkpoint cannot be written
// for a short time, and that the progress is saved later.
func TestFirstMarkNotSaved(t *testing.T) {
	const size, records = 5, 20
	m := vfstest.New()
	source := &notedSource{fakeSource: &fakeSource{lines: numbered(records), size: size}}
	sink := &ledgerSink{fakeSink: &fakeSink{}}
	armed := false
	source.read = func() {
		if !armed {
			armed = true
			m.Fail(vfstest.Fault{Op: vfstest.OpWrite, Path: "/state/checkpoint.log",
				Err: syscall.ENOSPC, Lasting: true})
		}
	}
	var once sync.Once
	first, struck := -1, 0
	sink.deliver = func(context.Context, stream.Attempt) error {
		once.Do(func() {
			first = len(killed(t, m))
			struck = m.Heal()
		})
		return nil
	}
	route := config.Route{Sink: use(stream.SinkRole, sink)}
	route.Checkpoint.Replay, route.Checkpoint.Sync = 1<<20, time.Hour
	if err := jobOf(t, m, Options{Once: true}, source.use(), route).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first != 0 || struck == 0 {
		t.Errorf("%d marks were saved on a full disk, which failed %d writes", first, struck)
	}
	if marks := killed(t, m); !sink.hasAll(source.lines) || len(marks) != 1 ||
		marks[0].Watermark.Num != records || marks[0].Metadata != noteTo(records) {
		t.Errorf("%q arrived, the checkpoint has %+v", sink.got, marks)
	}
}
