package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// deletedSource is a fakeSource that reports partitions as deleted when it has been read to its
// end. These are the partitions known at Open, and the partition that was read.
type deletedSource struct {
	*fakeSource
	known []string
}

func (s *deletedSource) use() config.Use {
	return config.Use{Component: stream.Component{
		Role: stream.SourceRole, Name: "fake", New: func(any, stream.Host) (any, error) { return s, nil },
	}}
}

// Open implements stream.Source.
func (s *deletedSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	s.known = nil
	for m := range o.Known {
		s.known = append(s.known, m.Part.ID)
	}
	r, err := s.fakeSource.Open(ctx, o)
	return &deletedReader{fakeReader: r.(*fakeReader), gone: s.known}, err
}

type deletedReader struct {
	*fakeReader
	mu    sync.Mutex // guards the fields below
	gone  []string
	ended bool
}

// Read implements stream.Reader.
func (r *deletedReader) Read(ctx context.Context, b *stream.Batch) error {
	err := r.fakeReader.Read(ctx, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = errors.Is(err, io.EOF)
	return err
}

// Metadata implements stream.PartitionTracker.
func (r *deletedReader) Metadata(stream.Mark) string { return "" }

// Deleted implements stream.PartitionTracker.
func (r *deletedReader) Deleted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		return nil
	}
	gone := r.gone
	r.gone = nil
	return gone
}

// prunedSink is a ledgerSink that drops partitions.
type prunedSink struct {
	*ledgerSink
	prune   func(ids []string) error // called before partitions are dropped
	dropped []string
	most    int // at once
}

// Load implements stream.TransactionalSink.
func (s *prunedSink) Load(context.Context) ([]stream.Mark, error) {
	return slices.Clone(s.holds), nil
}

// Prune implements stream.TransactionalSink.
func (s *prunedSink) Prune(_ context.Context, ids []string) error {
	s.most = max(s.most, len(ids))
	if s.prune != nil {
		if err := s.prune(ids); err != nil {
			return err
		}
	}
	s.dropped = append(s.dropped, ids...)
	s.holds = slices.DeleteFunc(s.holds, func(m stream.Mark) bool { return slices.Contains(ids, m.Part.ID) })
	return nil
}

func heldParts(ids ...string) (marks []stream.Mark) {
	for _, id := range ids {
		marks = append(marks, stream.Mark{Part: stream.Partition{ID: id, Name: id}, Watermark: stream.Position{Num: 5}})
	}
	return marks
}

// TestPrune checks which deleted partitions a sink with a ledger removes: those that the ledger had
// at the start, and of which this run has read nothing. The sink removes them only after their
// deletion from the checkpoint is durable. Otherwise, after a crash, the checkpoint could have a
// partition that the ledger lacks. The sink removes at most pruneAtOnce partitions in one
// transaction, and retries failures.
func TestPrune(t *testing.T) {
	const size, records = 5, 20
	m := vfstest.New()
	source := &deletedSource{fakeSource: &fakeSource{lines: numbered(records), size: size}}
	var ids []string
	for i := range 2*pruneAtOnce + 7 {
		ids = append(ids, fmt.Sprintf("gone%04d", i))
	}
	sink := &prunedSink{ledgerSink: &ledgerSink{fakeSink: &fakeSink{},
		holds: heldParts(append([]string{"fake"}, ids...)...)}}
	refusals := 1
	sink.prune = func(ids []string) error {
		if refusals > 0 {
			refusals--
			return errors.New("the database does not answer")
		}
		for _, mark := range killedBy(t, m, vfstest.DataNone) {
			if slices.Contains(ids, mark.Part.ID) {
				t.Errorf("%s is dropped, and a crash now would have the checkpoint name it", mark.Part.ID)
			}
		}
		return nil
	}
	route := config.Route{Sink: use(stream.SinkRole, sink)}
	route.Checkpoint.Replay, route.Checkpoint.Sync = 1<<20, time.Millisecond
	e := jobOf(t, m, Options{Once: true}, source.use(), route)
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(source.known) != len(ids)+1 || sink.most > pruneAtOnce || refusals != 0 {
		t.Errorf("the source knew %d partitions, %d were dropped at once, %d refusals are left",
			len(source.known), sink.most, refusals)
	}
	if slices.Sort(sink.dropped); !slices.Equal(sink.dropped, ids) {
		t.Errorf("%d were dropped, want the %d that were gone and not handed out: %v",
			len(sink.dropped), len(ids), sink.dropped)
	}
	if left := e.pipes[0].slots[0].route.saver.resumed.all(); len(left) != 0 {
		t.Errorf("%d marks of what was forgotten are held: %v", len(left), left)
	}
	if !sink.hasAll(source.lines[5:]) {
		t.Errorf("the sink has %q", sink.got)
	}
}

// TestPruneAfterKill checks that the run after a kill removes two partitions from the sink's
// ledger. "gone" was already removed from the checkpoint before the kill, but not from the ledger.
// "fake" was read in the killed run, and then deleted by the source. The checkpoint must record
// that it is finished until the ledger has no more rows of it.
func TestPruneAfterKill(t *testing.T) {
	const size, records = 5, 20
	m := vfstest.New()
	source := &deletedSource{fakeSource: &fakeSource{lines: numbered(records), size: size}}
	sink := &prunedSink{ledgerSink: &ledgerSink{fakeSink: &fakeSink{}, holds: heldParts("fake", "gone")}}
	var left *vfstest.Mem
	sink.prune = func([]string) error {
		left = m.Crash(vfstest.DataAll, vfstest.NamesAll, 0)
		return errors.New("it is killed here")
	}
	route := config.Route{Sink: use(stream.SinkRole, sink)}
	if err := jobOf(t, m, Options{Once: true}, source.use(), route).Run(t.Context()); err != nil || left == nil {
		t.Fatal(err, left)
	}
	marks := killedBy(t, left, vfstest.DataAll)
	if len(marks) != 1 || marks[0].Part.ID != "fake" || !marks[0].Finished {
		t.Fatalf("the checkpoint has %v, want the finished partition of this run alone", marks)
	}
	sink.prune = nil
	sink.holds[0].Watermark.Num = records
	if err := jobOf(t, left, Options{Once: true}, source.use(), route).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(sink.dropped); !slices.Equal(sink.dropped, []string{"fake", "gone"}) || len(sink.holds) != 0 {
		t.Errorf("dropped %v, the sink holds %v", sink.dropped, sink.holds)
	}
	if marks := killedBy(t, left, vfstest.DataAll); len(marks) != 0 {
		t.Errorf("the checkpoint has %v, want all forgotten", marks)
	}
}
