package pipeline

import (
	"bytes"
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
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// poisoned is the text of a record that kills its worker.
const poisoned = "poison"

// killer returns a Deliver function that takes perBatch for each batch. If the batch contains
// poison, the function panics after half of that time and adds one to deaths.
func killer(perBatch time.Duration, deaths *atomic.Int64) func(context.Context, stream.Attempt) error {
	return func(_ context.Context, a stream.Attempt) error {
		time.Sleep(perBatch / 2)
		if bytes.Contains(a.Value.AppendRaw(nil), []byte(poisoned)) {
			deaths.Add(1)
			panic("poisoned by " + poisoned)
		}
		time.Sleep(perBatch / 2)
		return nil
	}
}

// oneEach is a fakeSink with workers that take one batch at a time.
type oneEach struct{ fakeSink }

func (s *oneEach) Open(ctx context.Context, o stream.SinkOptions) error {
	set := o.Lanes
	o.Lanes = func(lanes []stream.Lane) {
		for i := range lanes {
			lanes[i].Limits.InFlight = 1
		}
		set(lanes)
	}
	return s.fakeSink.Open(ctx, o)
}

// TestPoison checks a run in which one record in 10,000 makes its worker panic. All other records
// are delivered once. After a poison record has killed 3 workers in a batch of its own, it becomes
// a dead letter that contains the stack. The throughput is at least 0.8 of that without poison.
func TestPoison(t *testing.T) {
	const records, each, perBatch, workers = 200_000, 10_000, time.Millisecond, 4
	run := func(t *testing.T, poison bool) (took time.Duration, deaths int64) {
		synctest.Test(t, func(t *testing.T) {
			m := vfstest.New()
			source := &fakeSource{lines: numbered(records), size: 100}
			for i := each / 2; poison && i < records; i += each {
				source.lines[i] = fmt.Sprintf("%s %d", poisoned, i)
			}
			var killed atomic.Int64
			sink := &oneEach{fakeSink{workers: workers, deliver: killer(perBatch, &killed)}}
			e := fakeJob(t, m, Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink)})
			began := time.Now()
			if err := e.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			took, deaths = time.Since(began), killed.Load()
			s := e.statusWithoutTree().Routes[0]
			conserved(t, s)
			dead := int64(0)
			if poison {
				dead = records / each
			}
			if s.Dead != dead || s.Delivered != records-dead || int64(len(sink.got)) != s.Delivered ||
				s.Counters["worker_deaths"] != deaths {
				t.Errorf("%d dead, %d delivered, %d arrived, %v", s.Dead, s.Delivered, len(sink.got), s.Counters)
			}
			letters, _ := m.ReadFile("/state/dead/p.r0.ndjson")
			n := strings.Count(string(letters), "3 workers died of it")
			if n != int(dead) || poison && !strings.Contains(string(letters), "deaths_test.go") {
				t.Errorf("%d dead letters tell of 3 deaths, with the stack; want %d: %.500s", n, dead, letters)
			}
		})
		return took, deaths
	}
	without, _ := run(t, false)
	with, deaths := run(t, true)
	share := float64(without) / float64(with)
	t.Logf("without poison %v, with %v: throughput %.2f; %d deaths of %d records", without, with,
		share, deaths, records/each)
	if share < 0.8 {
		t.Errorf("poison takes more than a fifth of the throughput: %v with, %v without", with, without)
	}
}

// TestDiedWithoutPanic checks that two other events count like a panic: an error that the sink
// declares to be a death, and a call of runtime.Goexit. All other errors do not count, however many
// there are.
func TestDiedWithoutPanic(t *testing.T) {
	for name, die := range map[string]func(){
		"a Died": nil,
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var deaths, refusals atomic.Int64
				sink := &fakeSink{workers: 2, deliver: func(_ context.Context, a stream.Attempt) error {
					text := a.Value.AppendRaw(nil)
					switch {
					case bytes.Contains(text, []byte("line 17\n")):
						deaths.Add(1)
						if die != nil {
							die()
						}
						return fmt.Errorf("child: %w", &stream.Died{Err: errors.New("signal: segmentation fault")})
					case bytes.Contains(text, []byte("line 5\n")) && refusals.Add(1) < 12:
						return errors.New("not now")
					}
					return nil
				}}
				m := vfstest.New()
				e := fakeJob(t, m, Options{Once: true}, &fakeSource{lines: numbered(1000), size: 10},
					config.Route{Sink: use(stream.SinkRole, sink)})
				if err := e.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				s := e.statusWithoutTree().Routes[0]
				letters, _ := m.ReadFile("/state/dead/p.r0.ndjson")
				if s.Dead != 1 || s.Delivered != 999 || !strings.Contains(string(letters), `"record":"line 17"`) {
					t.Errorf("%d dead, %d delivered; dead letters: %.500s", s.Dead, s.Delivered, letters)
				}
				if n := deaths.Load(); n > 3+4+3 || refusals.Load() < 12 {
					t.Errorf("%d deaths for one record of 10, %d other failures; want at most 10 "+
						"and at least 12", n, refusals.Load())
				}
			})
		})
	}
}

// TestAllWorkersDie checks a run in which every batch kills its worker. The guard must stop the
// route before many records are dead-lettered.
func TestAllWorkersDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{workers: 2, deliver: func(context.Context, stream.Attempt) error { panic("always") }}
		e := fakeJob(t, vfstest.New(), Options{Once: true}, &fakeSource{lines: numbered(10_000), size: 10},
			config.Route{Sink: use(stream.SinkRole, sink)})
		err := e.Run(t.Context())
		if s := e.statusWithoutTree().Routes[0]; err == nil || s.Dead > 110 {
			t.Errorf("Run = %v with %d dead letters; want the guard to stop it after the first 100", err, s.Dead)
		}
	})
}

// TestTree checks that the tree of a running engine names the goroutines and workers of each route.
// Before and after the run, the tree shows only the state of each route.
func TestTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sink := &fakeSink{workers: 2, deliver: func(context.Context, stream.Attempt) error { <-release; return nil }}
		process := fakeProcessor(func(*stream.Batch) {})
		e := fakeJob(t, vfstest.New(), Options{Once: true}, &fakeSource{lines: numbered(100), size: 10},
			config.Route{Sink: use(stream.SinkRole, sink),
				Processors: []config.Use{use(stream.ProcessorRole, process)}})
		if s := e.Tree(); s.State != supervise.Idle || s.Children[0].Children[0].State != supervise.Idle {
			t.Errorf("before Run:\n%v", s)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		synctest.Wait()
		text := e.Tree().String()
		for _, name := range []string{
			"penstock (one for one): running", "p (one for one): running", "r0: running", "sender",
			"reader", "processors",
			"processor-0", "checkpoint", "drain",
		} {
			if !strings.Contains(text, name) {
				t.Errorf("the tree lacks %q:\n%s", name, text)
			}
		}
		for _, name := range []string{"worker-0", "worker-1"} {
			w := e.Status().Tree.Find("p", "r0", "sender", name)
			if w == nil || w.State != "UNKNOWN" || w.Restarts != 0 || w.Since.IsZero() {
				t.Errorf("%s in the status is %+v", name, w)
			}
		}
		close(release)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if r := e.Tree().Children[0].Children[0]; r.State != supervise.Finished || len(r.Children) > 0 {
			t.Errorf("after Run:\n%v", r)
		}
	})
}
