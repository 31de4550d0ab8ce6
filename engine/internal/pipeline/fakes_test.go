package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// fakeSource returns its lines as one partition, in batches of a given size. At the end of the
// lines, Read blocks like that of a source that waits for more data, except in a finite run.
type fakeSource struct {
	size int
	err  error // returned after the lines

	endless bool // wait for more lines after the last one, also in a finite run

	mu       sync.Mutex
	lines    []string
	opened   int
	finished []string
}

// Open implements stream.Source.
func (s *fakeSource) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	r := &fakeReader{s: s, once: o.Once && !s.endless, part: &stream.Partition{ID: "fake", Name: "fake"}}
	if m, ok := o.Resume("fake"); ok {
		r.at, r.above, r.sealed = int(m.Watermark.Num), m.Above, m.Finished
	}
	return r, nil
}

// Finishes implements stream.Finisher.
func (s *fakeSource) Finishes() bool { return true }

// Finish implements stream.Finisher.
func (s *fakeSource) Finish(_ context.Context, p stream.Partition) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, p.Name)
	return nil
}

type fakeReader struct {
	s      *fakeSource
	once   bool
	part   *stream.Partition
	at     int
	above  []stream.Range // settled already
	sealed bool
}

// skip passes over settled records, and returns the start of the next settled range, or else end.
func (r *fakeReader) skip(end int) (until int) {
	for len(r.above) > 0 && int(r.above[0].From.Num) <= r.at {
		r.at = max(r.at, int(r.above[0].To.Num))
		r.above = r.above[1:]
	}
	if len(r.above) > 0 {
		return int(r.above[0].From.Num)
	}
	return end
}

// Read implements stream.Reader.
func (r *fakeReader) Read(ctx context.Context, b *stream.Batch) error {
	r.s.mu.Lock()
	lines := r.s.lines
	r.s.mu.Unlock()
	until := r.skip(len(lines))
	if r.at == len(lines) {
		switch {
		case r.s.err != nil:
			return r.s.err
		case r.once && r.sealed:
			return io.EOF
		case r.once:
			r.sealed = true
			span := stream.Span{Part: r.part, Last: true}
			span.From.Num, span.To.Num = int64(r.at), int64(r.at)
			b.Spans = append(b.Spans, span)
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	span := stream.Span{Part: r.part}
	span.From.Num = int64(r.at)
	for n := 0; n < r.s.size && r.at < until; n++ {
		line := lines[r.at] + "\n"
		r.at++
		b.Records = append(b.Records, stream.Record{
			Off: uint32(len(b.Data)), Len: uint32(len(line) - 1), Span: uint32(len(b.Spans)),
			Origin: stream.Position{Num: int64(r.at)},
		})
		b.Data = append(b.Data, line...)
		b.Origins++
	}
	span.To.Num, span.Bytes = int64(r.at), len(b.Data)
	b.Spans = append(b.Spans, span)
	return nil
}

// Commit implements stream.Reader.
func (r *fakeReader) Commit(context.Context, []stream.Mark) error { return nil }

// Close implements stream.Reader.
func (r *fakeReader) Close() error { return nil }

// fakeSink keeps the delivered records. If deliver is set, it decides the outcome of each attempt.
type fakeSink struct {
	deliver func(ctx context.Context, a stream.Attempt) error
	workers int

	mu   sync.Mutex
	got  []string
	open bool
}

// Open implements stream.Sink.
func (s *fakeSink) Open(_ context.Context, o stream.SinkOptions) error {
	s.open = true
	var lanes []stream.Lane
	for i := range max(1, s.workers) {
		lanes = append(lanes, stream.Lane{Name: fmt.Sprintf("worker-%d", i), Worker: s})
	}
	o.Lanes(lanes)
	return nil
}

// Close implements stream.Sink.
func (s *fakeSink) Close() error { return nil }

// Deliver implements stream.Worker.
func (s *fakeSink) Deliver(ctx context.Context, a stream.Attempt) (flow.Report, error) {
	if s.deliver != nil {
		if err := s.deliver(ctx, a); err != nil {
			return flow.Report{}, err
		}
	}
	text := string(a.Value.AppendRaw(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	return flow.Report{}, nil
}

// fakeProcessor is a processor that calls itself, a function, for each batch.
type fakeProcessor func(b *stream.Batch)

// Process implements stream.Processor.
func (p fakeProcessor) Process(_ context.Context, b *stream.Batch) error {
	if p == nil {
		return errors.New("no such processor")
	}
	p(b)
	return nil
}

func use(role stream.Role, what any) config.Use {
	return config.Use{Component: stream.Component{
		Role: role, Name: "fake",
		New: func(any, stream.Host) (any, error) { return what, nil },
	}}
}

// fakeJob assembles a pipeline from fakes on a file system in memory.
func fakeJob(t *testing.T, m *vfstest.Mem, o Options, source *fakeSource, routes ...config.Route) *Engine {
	t.Helper()
	return jobOf(t, m, o, use(stream.SourceRole, source), routes...)
}

func jobOf(t *testing.T, m *vfstest.Mem, o Options, source config.Use, routes ...config.Route) *Engine {
	t.Helper()
	for i := range routes {
		r := config.DefaultRoute(fmt.Sprintf("r%d", i), "/state")
		r.Sink, r.Processors = routes[i].Sink, routes[i].Processors
		if routes[i].Retry.Base > 0 {
			r.Retry = routes[i].Retry
		}
		if routes[i].Drain > 0 {
			r.Drain = routes[i].Drain
		}
		if routes[i].Memory > 0 {
			r.Memory = routes[i].Memory
		}
		if routes[i].Checkpoint.Replay > 0 {
			r.Checkpoint = routes[i].Checkpoint
		}
		if routes[i].Flow.Window != "" {
			r.Flow = routes[i].Flow
		}
		routes[i] = r
	}
	o.FS = m
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{
		{Name: "p", Source: source, Routes: routes},
	}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func numbered(n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("line %d", i))
	}
	return lines
}
