package memory_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// newComponent returns the component. It has no options.
func newComponent[T any](t testing.TB, c stream.Component, h stream.Host) T {
	t.Helper()
	v, err := c.New(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return v.(T)
}

func TestSourceSuite(t *testing.T) {
	for name, text := range map[string]func(i int) string{
		"lines": func(i int) string { return fmt.Sprintf("record %d %s", i, strings.Repeat("x", i%50)) },
		"texts": func(i int) string {
			return fmt.Sprintf("record %d%s%s", i, strings.Repeat("\nmore", i%3), strings.Repeat("\r", i%2))
		},
		"some texts": func(i int) string { return fmt.Sprintf("record %d%s", i, strings.Repeat("\n", i/100%2)) },
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			var records [][]byte
			for i := range 300 {
				want = append(want, text(i))
				records = append(records, []byte(text(i)))
			}
			var source *memory.Source
			connectortest.Source(t, connectortest.SourceCase{
				New: func(t *testing.T, h *streamtest.Host) stream.Source {
					return newComponent[stream.Source](t, source.Component(), h)
				},
				Want: [][]string{want},
				Reset: func(t *testing.T) {
					source = memory.NewSource(memory.SourceOptions{MaxBytes: 1 << 20})
					for i := 0; i < len(records); i += 50 {
						if err := source.Push(t.Context(), records[i:i+50]...); err != nil {
							t.Fatal(err)
						}
					}
				},
			})
		})
	}
}

// taken collects the records that a sink delivers.
type taken struct {
	mu    sync.Mutex
	texts []string
}

func (c *taken) add(texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, texts...)
}

func (c *taken) all(*testing.T) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.texts
}

func TestSinkSuite(t *testing.T) {
	for _, workers := range []int{0, 4} {
		t.Run(fmt.Sprintf("function, %d workers", workers), func(t *testing.T) {
			connectortest.Sink(t, connectortest.SinkCase{Start: func(*testing.T) connectortest.Receiver {
				var got taken
				deliver := func(_ context.Context, b *stream.Batch) error {
					var texts []string
					for _, i := range b.AppendKept(nil) {
						texts = append(texts, string(b.Text(i)))
					}
					got.add(texts...)
					return nil
				}
				return receiver(memory.NewSink(memory.SinkOptions{Workers: workers, Deliver: deliver}), &got)
			}})
		})
	}
	t.Run("loops", func(t *testing.T) {
		connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
			var got taken
			sink := memory.NewSink(memory.SinkOptions{Workers: 3})
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			var loops sync.WaitGroup
			for range 2 {
				loops.Go(func() {
					for r := range sink.Records(ctx) {
						got.add(string(r.Data))
					}
				})
			}
			t.Cleanup(func() { stop(); loops.Wait() })
			return receiver(sink, &got)
		}})
	})
}

func receiver(sink *memory.Sink, got *taken) connectortest.Receiver {
	return connectortest.Receiver{
		New: func(t *testing.T, h *streamtest.Host) stream.Sink {
			return newComponent[stream.Sink](t, sink.Component(), h)
		},
		Received: got.all,
	}
}
