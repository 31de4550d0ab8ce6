package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// faults lists the calls of one kind that fail, counted from 1.
type faults struct {
	site string
	at   []int
	how  func() error

	mu    sync.Mutex
	calls map[string]int
	hit   int
}

func (f *faults) strike(site string) error {
	f.mu.Lock()
	f.calls[site]++
	hit := site == f.site && slices.Contains(f.at, f.calls[site])
	if hit {
		f.hit++
	}
	f.mu.Unlock()
	if hit {
		return f.how()
	}
	return nil
}

// faulty is a source and a sink that fail at the calls that a test selects. The Commit of its
// reader checks that all records up to the watermark have arrived, unless blind is set.
type faulty struct {
	*fakeSource
	sink   *fakeSink
	faults *faults
	t      *testing.T
	host   stream.Host
	blind  bool // another sink gets the data: Commit cannot check it
}

func (s *faulty) source() config.Use {
	made := func(_ any, h stream.Host) (any, error) {
		s.host = h
		return s, nil
	}
	return config.Use{Component: stream.Component{Role: stream.SourceRole, Name: "fake", New: made}}
}

// Open implements stream.Source.
func (s *faulty) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if err := s.faults.strike("source open"); err != nil {
		return nil, err
	}
	s.host.Go("watch", func(ctx context.Context) error {
		for {
			if err := s.faults.strike("source goroutine"); err != nil {
				return err
			}
			if retry.Sleep(ctx, time.Second) != nil {
				return nil
			}
		}
	})
	r, err := s.fakeSource.Open(ctx, o)
	return &faultyReader{r.(*fakeReader), s}, err
}

type faultyReader struct {
	*fakeReader
	f *faulty
}

// Read implements stream.Reader.
func (r *faultyReader) Read(ctx context.Context, b *stream.Batch) error {
	if err := r.f.faults.strike("read"); err != nil {
		return err
	}
	return r.fakeReader.Read(ctx, b)
}

// Commit implements stream.Reader.
func (r *faultyReader) Commit(_ context.Context, marks []stream.Mark) error {
	if r.f.blind {
		return nil
	}
	r.f.sink.mu.Lock()
	arrived := make(map[string]bool)
	for _, line := range r.f.sink.got {
		arrived[line] = true
	}
	r.f.sink.mu.Unlock()
	for _, m := range marks {
		for n := range m.Watermark.Num {
			if !arrived[fmt.Sprintf("line %d", n)] {
				r.f.t.Errorf("everything up to %d counts as settled, and line %d has not arrived", m.Watermark.Num, n)
			}
		}
	}
	return r.f.faults.strike("commit")
}

// Close implements stream.Reader.
func (r *faultyReader) Close() error { return r.f.faults.strike("reader close") }

// faultySink is the sink of a faulty.
type faultySink struct {
	*fakeSink
	faults *faults
	host   stream.Host
}

func (s *faulty) sinkUse() config.Use {
	made := func(_ any, h stream.Host) (any, error) { return &faultySink{s.sink, s.faults, h}, nil }
	return config.Use{Component: stream.Component{Role: stream.SinkRole, Name: "fake", New: made}}
}

// Open implements stream.Sink.
func (s *faultySink) Open(ctx context.Context, o stream.SinkOptions) error {
	if err := s.faults.strike("sink open"); err != nil {
		return err
	}
	s.host.Go("keep", func(ctx context.Context) error {
		for {
			if err := s.faults.strike("sink goroutine"); err != nil {
				return err
			}
			if retry.Sleep(ctx, time.Second) != nil {
				return nil
			}
		}
	})
	set := o.Lanes
	o.Lanes = func(lanes []stream.Lane) {
		for i := range lanes {
			lanes[i].Worker = s
		}
		set(lanes)
	}
	return s.fakeSink.Open(ctx, o)
}

// Deliver implements stream.Worker.
func (s *faultySink) Deliver(ctx context.Context, a stream.Attempt) (flow.Report, error) {
	if err := s.faults.strike("deliver"); err != nil {
		return flow.Report{}, err
	}
	return s.fakeSink.Deliver(ctx, a)
}

// Encodes implements stream.Encoder.
func (s *faultySink) Encodes() stream.Encoding { return stream.EncodeAll }

// StartToken implements stream.AppendSink.
func (s *faultySink) StartToken() string { return "" }

// Encode implements stream.Encoder.
func (s *faultySink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	return dst, s.faults.strike("encode")
}

// Sync implements stream.AppendSink.
func (s *faultySink) Sync(context.Context) error { return s.faults.strike("sync") }

// Close implements stream.Sink.
func (s *faultySink) Close() error { return s.faults.strike("sink close") }
