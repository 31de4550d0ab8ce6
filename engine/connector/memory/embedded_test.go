package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

const embedded = `
state: /state
pipelines:
  p:
    source: { memory: {} }
    routes:
      steady: { sink: memory, batch: { records: 7 } }
      shaky: { sink: shaky, batch: { records: 10 } }
`

// flaky returns a sink that fails to open three times, and later panics at every 20th Deliver.
func flaky(sink *memory.Sink, opens, deliveries *atomic.Int64) stream.Component {
	c := sink.Component()
	create := c.New
	c.Name = "shaky"
	c.New = func(o any, h stream.Host) (any, error) {
		v, err := create(o, h)
		return &flakySink{v.(stream.Sink), opens, deliveries}, err
	}
	return c
}

type flakySink struct {
	stream.Sink
	opens, deliveries *atomic.Int64
}

// Open implements stream.Sink.
func (s *flakySink) Open(ctx context.Context, o stream.SinkOptions) error {
	if s.opens.Add(1) <= 3 {
		return errors.New("no such table")
	}
	lanes := o.Lanes
	o.Lanes = func(all []stream.Lane) {
		all[0].Worker = &flakyWorker{all[0].Worker, s.deliveries}
		lanes(all)
	}
	return s.Sink.Open(ctx, o)
}

type flakyWorker struct {
	stream.Worker
	deliveries *atomic.Int64
}

// Deliver implements stream.Worker.
func (w *flakyWorker) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	if w.deliveries.Add(1)%20 == 0 {
		panic("struck")
	}
	return w.Worker.Deliver(ctx, a)
}

// arrivals counts records by their text.
type arrivals struct {
	mu     sync.Mutex
	counts map[string]int
}

func (a *arrivals) add(_ context.Context, b *stream.Batch) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range b.AppendKept(nil) {
		a.counts[string(b.Text(i))]++
	}
	return nil
}

func (a *arrivals) has(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[text] > 0
}

// TestEmbedded pushes from several goroutines into a small source with two routes, one of which
// keeps failing. It checks that Send returns only when both routes have the record. Then it repeats
// this with a new source and engine over the same state, as after a restart.
func TestEmbedded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := vfstest.New()
		for process := range 2 {
			source := memory.NewSource(memory.SourceOptions{MaxBytes: 2000})
			routes := []*arrivals{{counts: make(map[string]int)}, {counts: make(map[string]int)}}
			var opens, deliveries atomic.Int64
			cfg, err := engine.Parse([]byte(embedded), source.Component(),
				memory.NewSink(memory.SinkOptions{Deliver: routes[0].add}).Component(),
				flaky(memory.NewSink(memory.SinkOptions{Deliver: routes[1].add}), &opens,
					&deliveries))
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.New(cfg, engine.Options{FS: files, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- e.Run(t.Context()) }()
			const pushers, each = 5, 100
			var wg sync.WaitGroup
			for p := range pushers {
				wg.Go(func() {
					for i := range each {
						text := fmt.Sprintf("process %d pusher %d record %d", process, p, i)
						push := source.Push
						if i%10 == 9 {
							push = source.Send
						}
						if err := push(t.Context(), []byte(text)); err != nil {
							t.Error(err)
						}
						if i%10 == 9 && (!routes[0].has(text) || !routes[1].has(text)) {
							t.Errorf("Send has returned, and %q has not arrived everywhere", text)
						}
					}
				})
			}
			wg.Wait()
			if err := source.Settled(t.Context()); err != nil {
				t.Error(err)
			}
			for n, r := range routes {
				if len(r.counts) != pushers*each {
					t.Errorf("process %d, route %d: %d of %d records arrived", process, n, len(r.counts), pushers*each)
				}
			}
			if opens.Load() < 4 || deliveries.Load() < 40 {
				t.Errorf("the sink was opened %d times and called %d times, too few to show anything",
					opens.Load(), deliveries.Load())
			}
			_ = source.Close()
			if err := <-ended; err != nil {
				t.Errorf("Run = %v", err)
			}
			time.Sleep(time.Second)
		}
	})
}
