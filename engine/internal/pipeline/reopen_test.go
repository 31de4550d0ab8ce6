package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// replaced is the common state of all instances of a sink (replacedSink). The first instance acts
// as if its output was replaced by another one after 3 records, like a rotated file: it asks to be
// opened again.
type replaced struct {
	fakeSink
	open   func(n int) error // result of Open number n, from 1
	places []string          // resume tokens that were passed to Open
}

// replacedSink is one instance of a sink with the output replaced.
type replacedSink struct {
	*replaced
	host  stream.Host
	asked chan error // result of the goroutine
}

func (s *replaced) use() config.Use {
	made := func(_ any, h stream.Host) (any, error) { return &replacedSink{s, h, make(chan error, 1)}, nil }
	return config.Use{Component: stream.Component{Role: stream.SinkRole, Name: "fake", New: made}}
}

// StartToken implements stream.AppendSink.
func (s *replacedSink) StartToken() string { return fmt.Sprintf("start of %d", len(s.places)) }

// Sync implements stream.AppendSink.
func (s *replacedSink) Sync(context.Context) error { return nil }

// Open implements stream.Sink.
func (s *replacedSink) Open(_ context.Context, o stream.SinkOptions) error {
	s.places = append(s.places, o.ResumeToken)
	if err := s.open(len(s.places)); err != nil {
		return err
	}
	s.host.Go("watch", func(ctx context.Context) error {
		select {
		case err := <-s.asked:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	o.Lanes([]stream.Lane{{Name: "out", Worker: s, Limits: stream.Limits{InFlight: 1, Ordered: true}}})
	return nil
}

// Deliver implements stream.Worker.
func (s *replacedSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	if len(s.places) == 1 && len(s.got) == 3 { // the first output is replaced
		s.asked <- &stream.ReopenError{ResumeToken: "asked for", Err: errors.New("output replaced")}
		<-ctx.Done()
		return stream.Report{}, context.Cause(ctx)
	}
	report, err := s.fakeSink.Deliver(ctx, a)
	report.ResumeToken = fmt.Sprintf("%d", len(s.got))
	return report, err
}

// TestReopen checks a sink that asks to be opened again. It must be opened immediately, with the
// resume token in its request.
func TestReopen(t *testing.T) {
	s := &replaced{open: func(int) error { return nil }}
	if _, starts := runReplaced(t, s, time.Second); starts != 1 {
		t.Errorf("the route counts %d starts, want 1", starts)
	}
	if want := []string{"", "asked for"}; !slices.Equal(s.places, want) {
		t.Errorf("opened at %q, want %q", s.places, want)
	}
}

// TestReopenFails checks a sink that asks to be opened again with a resume token, but cannot be
// opened immediately. The token must be kept for the next Open. The token in the checkpoint belongs
// to the replaced output, and might be refused forever.
func TestReopenFails(t *testing.T) {
	s := &replaced{open: func(n int) error {
		if n == 2 || n == 3 {
			return errors.New("too many open files")
		}
		return nil
	}}
	runReplaced(t, s, time.Minute)
	if want := []string{"", "asked for", "asked for", "asked for"}; !slices.Equal(s.places, want) {
		t.Errorf("opened at %q, want %q", s.places, want)
	}
}

// TestReopenWhileOpening checks that a route waits with backoff if its sink asks to be opened again
// while it is opening.
func TestReopenWhileOpening(t *testing.T) {
	s := &replaced{open: func(n int) error {
		if n >= 2 && n < 8 {
			return &stream.ReopenError{ResumeToken: "asked for", Err: errors.New("replaced again")}
		}
		return nil
	}}
	if took, _ := runReplaced(t, s, 10*time.Minute); took < 5*time.Second {
		t.Errorf("6 failed attempts to open took %v: there was no backoff", took)
	}
}

// runReplaced runs a route into s until all lines have arrived. It returns how long that took, and
// how often the route has started.
func runReplaced(t *testing.T, s *replaced, limit time.Duration) (took time.Duration, starts int) {
	synctest.Test(t, func(t *testing.T) {
		e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{lines: numbered(6), size: 1}, config.Route{Sink: s.use()})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		begun := time.Now()
		for e.statusWithoutTree().Routes[0].Delivered < 6 && time.Since(begun) < limit {
			time.Sleep(10 * time.Millisecond)
		}
		took, starts = time.Since(begun), e.statusWithoutTree().Routes[0].Starts
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if !slices.Equal(s.got, numbered(6)) {
			t.Errorf("%d lines arrived: %v", len(s.got), s.got)
		}
	})
	return took, starts
}
