package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// spreadSource returns one line of each of its partitions every 20 ms, without end. It is its own
// reader.
type spreadSource struct {
	parts  []*stream.Partition
	at     int64
	refuse error // of Commit

	noted, commits atomic.Int64 // marks for which metadata was requested; calls of Commit
}

func spread(n int) *spreadSource {
	s := &spreadSource{}
	for i := range n {
		id := fmt.Sprintf("file %d", i)
		s.parts = append(s.parts, &stream.Partition{ID: id, Name: id})
	}
	return s
}

// Open implements stream.Source.
func (s *spreadSource) Open(context.Context, stream.OpenOptions) (stream.Reader, error) {
	return s, nil
}

// Read implements stream.Reader.
func (s *spreadSource) Read(ctx context.Context, b *stream.Batch) error {
	if retry.Sleep(ctx, 20*time.Millisecond) != nil {
		return context.Cause(ctx)
	}
	for _, part := range s.parts {
		span := stream.Span{Part: part, Bytes: 5}
		span.From.Num, span.To.Num = s.at, s.at+5
		b.Records = append(b.Records,
			stream.Record{Off: uint32(len(b.Data)), Len: 4, Span: uint32(len(b.Spans)), Origin: span.To})
		b.Data = append(b.Data, "line\n"...)
		b.Spans = append(b.Spans, span)
		b.Origins++
	}
	s.at += 5
	return nil
}

// Metadata implements stream.PartitionTracker.
func (s *spreadSource) Metadata(stream.Mark) string {
	s.noted.Add(1)
	return "note"
}

// Deleted implements stream.PartitionTracker.
func (s *spreadSource) Deleted() []string { return nil }

// Commit implements stream.Reader.
func (s *spreadSource) Commit(context.Context, []stream.Mark) error {
	s.commits.Add(1)
	return s.refuse
}

// Close implements stream.Reader.
func (s *spreadSource) Close() error { return nil }

// TestManyPartitionsAreWrittenRarely runs a route with many growing partitions. The route writes
// the checkpoint soon after records have settled, but these writes must not cost more than with a
// few partitions. Unreported progress must not accumulate, even if there is no sync for an hour or
// the source refuses reports. Reports to a source that refuses them must come at growing intervals.
func TestManyPartitionsAreWrittenRarely(t *testing.T) {
	const parts, seconds, marks = 200, 20, 5200 // marks: the limit per second
	for name, test := range map[string]struct {
		sync    time.Duration
		refuse  error
		commits int64 // at most
	}{
		"no sync for long": {time.Hour, nil, 0},
		"refused":          {time.Second, errors.New("the broker does not answer"), 14},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, sink, source := vfstest.New(), &fakeSink{}, spread(parts)
				source.refuse = test.refuse
				route := config.Route{Sink: use(stream.SinkRole, sink),
					Checkpoint: config.Checkpoint{Replay: 1 << 20, Sync: test.sync}}
				e := jobOf(t, m, Options{}, use(stream.SourceRole, source), route)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				time.Sleep(seconds * time.Second)
				synctest.Wait()
				r := e.pipes[0].slots[0].route.saver
				t.Logf("%d delivered, %d marks written, %d wait to be told, %d commits",
					e.statusWithoutTree().Routes[0].Delivered,
					source.noted.Load(), len(r.unreported), source.commits.Load())
				if n := source.noted.Load(); n < seconds*parts || n > seconds*marks {
					t.Errorf("%d marks were written in %d s", n, seconds)
				}
				if len(r.unreported) > parts {
					t.Errorf("%d marks of %d partitions wait to be told", len(r.unreported), parts)
				}
				if n := source.commits.Load(); n > test.commits || n == 0 && test.commits > 0 {
					t.Errorf("%d commits in %d s", n, seconds)
				}
				stop()
				<-ended
			})
		})
	}
}

// TestNewPartitionsAreToldEarly checks that the source learns of the saved progress of manyParts
// new partitions before the next sync is due. Fewer new partitions cause no additional sync.
func TestNewPartitionsAreToldEarly(t *testing.T) {
	for _, test := range []struct {
		parts   int
		commits int64
	}{
		{manyParts, 1},
		{manyParts - 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, source := vfstest.New(), spread(test.parts)
			route := config.Route{
				Sink:       use(stream.SinkRole, &fakeSink{}),
				Checkpoint: config.Checkpoint{Replay: 1 << 20, Sync: time.Hour},
			}
			e := jobOf(t, m, Options{}, use(stream.SourceRole, source), route)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(time.Second)
			synctest.Wait()
			if n := source.commits.Load(); n != test.commits {
				t.Errorf("%d new partitions: %d commits, want %d", test.parts, n, test.commits)
			}
			stop()
			<-ended
		})
	}
}
