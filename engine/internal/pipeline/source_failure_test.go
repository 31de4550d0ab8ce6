package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// onceBrokenSource is a source whose first reader fails after its lines, as after a lost
// connection. Later readers have more lines.
type onceBrokenSource struct {
	*fakeSource
	ranges *rangeSource // nil: batches wait in memory
	opens  int
}

// Open implements stream.Source.
func (s *onceBrokenSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if s.opens++; s.opens > 1 {
		s.fakeSource.err, s.fakeSource.lines = nil, numbered(30)
	}
	if s.ranges != nil {
		return s.ranges.Open(ctx, o)
	}
	return s.fakeSource.Open(ctx, o)
}

// TestSourceFailsWhileABatchFails checks a source that fails while one batch fails at each attempt.
// The route must restart and continue to read. A finite run must end with the source's error.
func TestSourceFailsWhileABatchFails(t *testing.T) {
	for _, ranges := range []bool{false, true} {
		for _, once := range []bool{false, true} {
			t.Run(fmt.Sprintf("ranges=%v,once=%v", ranges, once), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runBrokenSource(t, ranges, once) })
			})
		}
	}
}

func runBrokenSource(t *testing.T, ranges, once bool) {
	inner := &fakeSource{lines: numbered(20), size: 1, err: errors.New("connection lost")}
	source := &onceBrokenSource{fakeSource: inner}
	if ranges {
		source.ranges = &rangeSource{fakeSource: inner}
	}
	sink := &fakeSink{workers: 2, deliver: func(_ context.Context, a stream.Attempt) error {
		if strings.Contains(string(a.Value.AppendRaw(nil)), "line 7\n") {
			return errors.New("500")
		}
		return nil
	}}
	route := retrying(time.Minute)
	route.Sink = use(stream.SinkRole, sink)
	e := jobOf(t, vfstest.New(), Options{Once: once}, use(stream.SourceRole, source), route)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	if once {
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "connection lost") {
				t.Errorf("the run ended with %v, want the source's error", err)
			}
		default:
			t.Error("the run has not ended")
		}
		stop()
		return
	}
	s := e.statusWithoutTree().Routes[0]
	if s.Starts < 2 || s.Delivered != 29 {
		t.Errorf("started %d times, %d records delivered, want a restart and 29", s.Starts, s.Delivered)
	}
	stop()
	<-ended
}
