package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// slowCommits is a source. Its first Commit blocks until the context ends.
type slowCommits struct {
	*fakeSource
	commits, ended atomic.Int64
}

// Open implements stream.Source.
func (s *slowCommits) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r, err := s.fakeSource.Open(ctx, o)
	return slowCommitsReader{r.(*fakeReader), s}, err
}

type slowCommitsReader struct {
	*fakeReader
	s *slowCommits
}

// Commit implements stream.Reader.
func (r slowCommitsReader) Commit(ctx context.Context, _ []stream.Mark) error {
	if r.s.commits.Add(1) > 1 {
		return nil
	}
	<-ctx.Done()
	r.s.ended.Add(1)
	return context.Cause(ctx)
}

// TestCommitAtTheEnd checks a finite run that ends during a Commit of the source. The run must not
// fail, because the last save commits again.
func TestCommitAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slowCommits{fakeSource: &fakeSource{lines: numbered(4), size: 1}}
		sink := &fakeSink{workers: 1}
		sink.deliver = func(context.Context, stream.Attempt) error {
			time.Sleep(time.Second)
			return nil
		}
		made := config.Use{Component: stream.Component{
			Role: stream.SourceRole, Name: "fake",
			New: func(any, stream.Host) (any, error) { return source, nil },
		}}
		route := config.Route{Sink: use(stream.SinkRole, sink)}
		e := jobOf(t, vfstest.New(), Options{Once: true}, made, route)
		if err := e.Run(t.Context()); err != nil {
			t.Errorf("Run = %v", err)
		}
		commits, ended := source.commits.Load(), source.ended.Load()
		if ended != 1 || commits < 2 {
			t.Errorf("%d commits, %d were interrupted: the test shows nothing", commits, ended)
		}
	})
}

// TestSaveEndsWithTheRun checks a save that still waits for another save when the run ends. It must
// return a retryableError: with this error the run does not fail, because the last save follows.
func TestSaveEndsWithTheRun(t *testing.T) {
	a := &assignments{saving: make(chan struct{}, 1)}
	a.saving <- struct{}{} // a revocation saves
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.save(ctx, func(context.Context) error { t.Error("two saves at once"); return nil })
	if _, later := errors.AsType[*retryableError](err); !later {
		t.Errorf("save = %v, want a retryableError", err)
	}
}
