package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// steps are processors that call the function step for each kept record, except for records that a
// processor has added. The field made counts the instances: one that has failed is replaced.
type steps struct {
	made atomic.Int64
	took time.Duration // of each record
	step func(b *stream.Batch, i int)
}

func (s *steps) use() config.Use {
	return config.Use{Component: stream.Component{
		Role: stream.ProcessorRole, Name: "fake",
		New: func(_ any, h stream.Host) (any, error) { s.made.Add(1); return &instance{s, h, false}, nil },
	}}
}

type instance struct {
	*steps
	host    stream.Host
	started bool
}

// Process implements stream.Processor.
func (p *instance) Process(ctx context.Context, b *stream.Batch) error {
	if !p.started { // goroutines of an instance end with it
		p.started = true
		p.host.Go("helper", func(ctx context.Context) error { <-ctx.Done(); return nil })
	}
	b.Split()
	_ = retry.Sleep(ctx, p.took*time.Duration(b.Kept()))
	for i := 0; i < len(b.Records); i++ {
		if b.Records[i].State == stream.Kept && b.Records[i].Sub == 0 {
			p.step(b, i)
		}
	}
	return nil
}

// TestPoisonedProcessors checks a run in which one record in 10,000 kills its processor, by a panic
// or by runtime.Goexit. The processor has then already changed a part of the batch. After the
// record alone has killed three processors, it becomes a dead letter that contains the stack. All
// other records are processed exactly once, including added, dropped and dead-lettered ones. The
// throughput is at least 0.8 of that without such records.
func TestPoisonedProcessors(t *testing.T) {
	const records, each = 60_000, 10_000
	for name, die := range map[string]func(){"panic": func() { panic("poisoned") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			run := func(poison bool) (took time.Duration) {
				synctest.Test(t, func(t *testing.T) {
					s := &steps{took: 10 * time.Microsecond, step: func(b *stream.Batch, i int) {
						switch text := string(b.Text(i)); {
						case strings.HasPrefix(text, poisoned):
							die()
						case strings.HasSuffix(text, "1"):
							b.Drop(i)
						case strings.HasSuffix(text, "202"):
							b.DeadLetter(i, errors.New("ends in 202"))
						case strings.HasSuffix(text, "3"):
							was := b.Records[i]
							extra := oneMore(b, i)
							extra.Off, extra.Len = was.Off, was.Len
						default:
							from := b.OpenFields(i)
							b.SetFields(i, from)
						}
					}}
					source := &fakeSource{lines: numbered(records), size: 100}
					for i := each / 2; poison && i < records; i += each {
						source.lines[i] = fmt.Sprintf("%s %d", poisoned, i)
					}
					m, sink := vfstest.New(), &fakeSink{workers: 2}
					e := fakeJob(t, m, Options{Once: true}, source,
						config.Route{Sink: use(stream.SinkRole, sink), Processors: []config.Use{s.use()}})
					began := time.Now()
					if err := e.Run(t.Context()); err != nil {
						t.Fatal(err)
					}
					took = time.Since(began)
					accounts(t, e, m, sink, poison)
					died := e.statusWithoutTree().Routes[0].Counters["processor_deaths"]
					if created := s.made.Load() - 1 - int64(runtime.GOMAXPROCS(0)); created != died {
						t.Errorf("%d processors were created again, %d have died", created, died)
					}
				})
				return took
			}
			without, with := run(false), run(true)
			t.Logf("without poison %v, with %v: throughput %.2f", without, with, float64(without)/float64(with))
			if float64(without)/float64(with) < 0.8 {
				t.Errorf("poison takes more than a fifth of the throughput: %v with, %v without", with, without)
			}
		})
	}
}

// accounts compares the result of TestPoisonedProcessors with the expected one.
func accounts(t *testing.T, e *Engine, m *vfstest.Mem, sink *fakeSink, poison bool) {
	t.Helper()
	s := e.statusWithoutTree().Routes[0]
	conserved(t, s)
	deadLettered := int64(60)
	if poison {
		deadLettered += 6
	}
	if s.Dead != deadLettered || s.Dropped != 6000 || s.Delivered != 60_000-6000-deadLettered {
		t.Errorf("%d dead, %d dropped, %d delivered", s.Dead, s.Dropped, s.Delivered)
	}
	arrived := make(map[string]int)
	for _, line := range sink.got {
		arrived[line]++
	}
	for n := range 60_000 {
		line, want := fmt.Sprintf("line %d", n), 1
		switch {
		case poison && n%10_000 == 5000, strings.HasSuffix(line, "1"), strings.HasSuffix(line, "202"):
			want = 0
		case strings.HasSuffix(line, "3"):
			want = 2
		}
		if arrived[line] != want {
			t.Fatalf("%q arrived %d times, want %d", line, arrived[line], want)
		}
	}
	letters, _ := m.ReadFile("/state/dead/p.r0.ndjson")
	text := string(letters)
	if !poison {
		return
	}
	if strings.Count(text, "3 processors died of it") != 6 || strings.Count(text, "processing_test.go") < 6 ||
		!strings.Contains(text, `"record":"poison 25000"`) {
		t.Errorf("dead letters: %.2000s", text)
	}
}

// TestProcessorAlwaysPanics checks that a route with a processor that always panics does not hang.
// Nothing is delivered, the first batch is dead-lettered, and the guard stops the route.
func TestProcessorAlwaysPanics(t *testing.T) {
	if testing.Short() {
		t.Skip("short, as under the race detector: after hundreds of panics in a bubble its " +
			"runtime fails a check of its own")
	}
	synctest.Test(t, func(t *testing.T) {
		s := &steps{step: func(*stream.Batch, int) { panic("always") }}
		sink := &fakeSink{}
		e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{lines: numbered(5000), size: 500},
			config.Route{Sink: use(stream.SinkRole, sink), Processors: []config.Use{s.use()}})
		began := time.Now()
		err := e.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "stopped by the guard") || len(sink.got) > 0 {
			t.Errorf("Run = %v, %d records arrived", err, len(sink.got))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// TestEncoderPanics checks that a record that makes the sink's encoder panic is found like a record
// that kills a processor.
func TestEncoderPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &picky{fakeSink: &fakeSink{}}
		m := vfstest.New()
		source := &fakeSource{lines: numbered(5000), size: 500}
		e := fakeJob(t, m, Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink)})
		if err := e.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		letters, _ := m.ReadFile("/state/dead/p.r0.ndjson")
		if s := e.statusWithoutTree().Routes[0]; s.Dead != 1 || s.Delivered != 4999 ||
			!strings.Contains(string(letters), `"record":"line 4321"`) {
			t.Errorf("%d dead, %d delivered: %.300s", s.Dead, s.Delivered, letters)
		}
	})
}

type picky struct{ *fakeSink }

// Encodes implements stream.Encoder.
func (*picky) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder.
func (*picky) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	dst = b.AppendRaw(dst)
	if strings.Contains(string(dst), "line 4321\n") {
		panic("cannot encode this")
	}
	return dst, nil
}

// TestProcessorFails checks that an error returned by a processor does not count as a death. The
// route ends, restarts, and delivers once the processor works again.
func TestProcessorFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		failing := failingProcessor(func() error {
			if calls.Add(1) <= 4 {
				return errors.New("no such model")
			}
			return nil
		})
		sink := &fakeSink{}
		e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{lines: numbered(50), size: 10},
			config.Route{Sink: use(stream.SinkRole, sink),
				Processors: []config.Use{use(stream.ProcessorRole, failing)}})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Minute)
		if s := e.statusWithoutTree().Routes[0]; s.Delivered != 50 || s.ReadRecords != 50 ||
			s.Starts < 2 ||
			s.Health != healthRunning {
			t.Errorf("%d read, %d delivered, start %d, %s: %v", s.ReadRecords, s.Delivered, s.Starts, s.Health, s.Error)
		}
		if text := e.Tree().String(); !strings.Contains(text, "no such model") {
			t.Errorf("the tree does not say why it was started again:\n%s", text)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type failingProcessor func() error

// Process implements stream.Processor.
func (f failingProcessor) Process(context.Context, *stream.Batch) error { return f() }
