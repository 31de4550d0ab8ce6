package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// crashingSource is a fakeSource that panics at read number dies.
type crashingSource struct {
	fakeSource
	dies int
}

// Open implements stream.Source.
func (s *crashingSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r, err := s.fakeSource.Open(ctx, o)
	return &crashingReader{fakeReader: r.(*fakeReader), dies: s.dies}, err
}

type crashingReader struct {
	*fakeReader
	reads, dies int
}

// Read implements stream.Reader.
func (r *crashingReader) Read(ctx context.Context, b *stream.Batch) error {
	if r.reads++; r.reads == r.dies {
		panic("the source dies")
	}
	return r.fakeReader.Read(ctx, b)
}

// TestReadIsDelivered checks that batches are delivered in the order in which they were read. They
// are delivered even if the reader then waits for further input or dies, and even if only few
// batches fit into memory.
func TestReadIsDelivered(t *testing.T) {
	for _, lines := range []int{0, 1, 2, 3, 17} {
		for _, dies := range []bool{false, true} {
			for _, memory := range []stream.Size{1, 32 << 20} {
				for _, prompt := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d lines, dies %v, memory %v, prompt %v", lines, dies,
						memory, prompt), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { readIsDelivered(t, lines, dies, memory, prompt) })
					})
				}
			}
		}
	}
}

func readIsDelivered(t *testing.T, lines int, dies bool, memory stream.Size, prompt bool) {
	source := &crashingSource{fakeSource: fakeSource{lines: numbered(lines), size: 1}}
	if dies {
		source.dies = lines + 1
	}
	sink := &promptSink{prompt: prompt}
	inOrder := config.DefaultRoute("", "/state").Flow
	inOrder.Window, inOrder.Order = "queue", "partition"
	e := jobOf(t, vfstest.New(), Options{Once: dies}, use(stream.SourceRole, source),
		config.Route{Sink: use(stream.SinkRole, sink), Memory: memory, Flow: inOrder})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	time.Sleep(100 * time.Millisecond) // of a start-up's waits
	sink.mu.Lock()
	if want := source.lines; !slices.Equal(sink.got, want) {
		t.Errorf("delivered %q, want %q", sink.got, want)
	}
	sink.mu.Unlock()
	cancel()
	if err := <-ended; dies && (err == nil || !strings.Contains(err.Error(), "reader")) {
		t.Errorf("the source's death was not reported: %v", err)
	}
}

// promptSink is a fakeSink. Its lane is inline if prompt is set.
type promptSink struct {
	fakeSink
	prompt bool
}

// Open implements stream.Sink.
func (s *promptSink) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: "w", Worker: s, Inline: s.prompt,
		Limits: flow.Limits{InFlight: 4}}})
	return nil
}

// TestScope checks that a scope ends when its parent context ends or when end is called, even if
// end is called before the scope begins.
func TestScope(t *testing.T) {
	var s scope
	outer, cancel := context.WithCancelCause(t.Context())
	ctx := s.in(outer)
	if s.in(t.Context()) != ctx || ctx.Err() != nil {
		t.Error("a scope that was begun is another one, or over")
	}
	stopped := errors.New("stopped")
	cancel(stopped)
	if s.end(ErrDraining); context.Cause(ctx) != stopped {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
	var early scope
	early.end(ErrDraining)
	early.end(stopped)
	if ctx := early.in(t.Context()); context.Cause(ctx) != ErrDraining {
		t.Errorf("ended before it was begun, by %v", context.Cause(ctx))
	}
}
