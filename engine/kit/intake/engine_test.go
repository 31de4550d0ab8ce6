package intake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// component is a source that is an intake and nothing else.
func component(in **intake.Intake, o intake.Options) stream.Component {
	return stream.Component{Role: stream.SourceRole, Name: "intake", New: func(_ any, h stream.Host) (any, error) {
		var err error
		*in, err = intake.New(o, h)
		return *in, err
	}}
}

// start runs an engine until the test ends.
func start(t *testing.T, text string, components ...stream.Component) (e *engine.Engine, ended chan error) {
	t.Helper()
	cfg, err := engine.Parse([]byte(text), append(all.Components(), components...)...)
	if err != nil {
		t.Fatal(err)
	}
	e, err = engine.New(cfg, engine.Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	return e, ended
}

// TestAnswersSoon checks that a sender does not wait for the checkpoint's interval, even if records
// are dropped or dead-lettered.
func TestAnswersSoon(t *testing.T) {
	for _, sink := range []string{"memory", "file: {path: /out/records, format: raw}", "drop"} {
		t.Run(sink, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in *intake.Intake
				text := fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: intake
    processors: [{where: 'message != "drop"'}]
    sink: {%s}
    checkpoint: {sync: 1m}
`, sink)
				deliver := func(_ context.Context, b *stream.Batch) error {
					if b.Kept() > 1 || string(b.Text(b.AppendKept(nil)[0])) != "bad" {
						return nil
					}
					return &stream.Rejected{Err: errors.New("never")}
				}
				e, ended := start(t, text, component(&in, intake.Options{}),
					memory.NewSink(memory.SinkOptions{Deliver: deliver}).Component())
				for _, records := range []string{"one", "drop", "bad", "two"} {
					begun := time.Now()
					if err := submit(t, in, lines(records)).Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(begun); took > 5*time.Second {
						t.Errorf("%q was settled after %v", records, took)
					}
				}
				e.Drain()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestDrainDelivers checks that a drain delivers all accepted data over two routes. One of the
// routes fails occasionally.
func TestDrainDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in *intake.Intake
		var mu sync.Mutex
		got := [2]map[string]int{make(map[string]int), make(map[string]int)}
		sinkOf := func(n int, name string) stream.Component {
			calls := 0
			return memory.NewSink(memory.SinkOptions{Name: name,
				Deliver: func(_ context.Context, b *stream.Batch) error {
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					if calls++; n == 1 && calls%5 == 0 {
						return errors.New("busy")
					}
					for _, i := range b.AppendKept(nil) {
						got[n][string(b.Text(i))]++
					}
					return nil
				}}).Component()
		}
		e, ended := start(t, `
state: /state
pipelines:
  p:
    source: intake
    routes:
      steady: {sink: a, batch: {records: 7}}
      shaky: {sink: b, batch: {records: 10}}
`, component(&in, intake.Options{}), sinkOf(0, "a"), sinkOf(1, "b"))
		if err := submit(t, in, lines("both routes are open")).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		const submissions, each = 100, 5
		for i := range submissions {
			var records intake.Records
			for k := range each {
				records.Add(fmt.Appendf(nil, "%d.%d", i, k))
			}
			if err := in.Add(t.Context(), records); err != nil {
				t.Fatal(err)
			}
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for n := range got {
			if len(got[n]) != submissions*each+1 {
				t.Errorf("route %d has %d of %d records", n, len(got[n]), submissions*each+1)
			}
		}
		if in.Held() != 0 {
			t.Errorf("%d bytes are held", in.Held())
		}
	})
}

// TestWithdrawFromEngine withdraws submissions at random times. A submission that no worker has got
// must be withdrawn at once and never delivered. Every route must deliver the other submissions,
// and the counters of the routes must not contain withdrawn ones.
func TestWithdrawFromEngine(t *testing.T) {
	for name, c := range map[string]struct {
		routes string
		tight  bool // exactly the submissions that a worker has got are delivered
	}{
		"one route":    {"{sink: a, batch: {records: 1}, drain: 10m}", true},
		"full batches": {"{sink: a, batch: {records: 5}, drain: 10m}", false},
		"processors": {"{sink: a, batch: {records: 3}, drain: 10m, " +
			"processors: [{set: {x: '1'}}]}", false},
		"two routes": {"{sink: a, batch: {records: 3}, drain: 10m}\n" +
			"      s: {sink: b, batch: {records: 4}, drain: 10m}", false},
	} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					withdrawFromEngine(t, c.routes, c.tight, rand.New(rand.NewPCG(seed, 27)))
				})
			})
		}
	}
}

func withdrawFromEngine(t *testing.T, routes string, tight bool, rnd *rand.Rand) {
	var in *intake.Intake
	var mu sync.Mutex // guards the variables below
	sent := make(map[string]bool)
	done := map[string]map[string]bool{"a": {}, "b": {}}
	calls := 0
	sinkOf := func(name string) stream.Component {
		return memory.NewSink(memory.SinkOptions{Name: name, Workers: 3,
			Deliver: func(_ context.Context, b *stream.Batch) error {
				var texts []string
				mu.Lock()
				for _, i := range b.AppendKept(nil) {
					texts = append(texts, string(b.Text(i)))
					sent[texts[len(texts)-1]] = true
				}
				calls++
				failed := calls%4 == 0
				mu.Unlock()
				time.Sleep(2 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				for _, text := range texts {
					done[name][text] = true
				}
				if failed {
					return errors.New("stored, and the answer was lost")
				}
				return nil
			}}).Component()
	}
	e, ended := start(t, `
state: /state
pipelines:
  p:
    source: intake
    routes:
      r: `+routes, component(&in, intake.Options{Remember: time.Hour}), sinkOf("a"), sinkOf("b"))
	if err := submit(t, in, lines("first")).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	outcomes := withdrawSome(t, in, rnd)
	e.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	withdrawn := 0
	for k, err := range outcomes {
		text := fmt.Sprint(k)
		switch {
		case errors.Is(err, intake.ErrWithdrawn):
			if withdrawn++; sent[text] {
				t.Errorf("%s was withdrawn, and a worker has got it", text)
			}
		case tight && err != nil && !sent[text]:
			t.Errorf("%s: %v, but no worker has got it", text, err)
		case err == nil && !(done["a"][text] && (len(done["b"]) == 0 || done["b"][text])):
			t.Errorf("%s was settled and is not delivered by every route", text)
		}
	}
	if withdrawn == 0 || len(sent) < 4 {
		t.Errorf("%d submissions withdrawn, %d sent; want some of both", withdrawn, len(sent))
	}
	if in.Held() != 0 {
		t.Errorf("%d bytes are held", in.Held())
	}
	for _, r := range e.Status().Routes {
		if r.ReadRecords != r.Delivered || r.InFlight != 0 {
			t.Errorf("route %s: %d records read, %d delivered", r.Name, r.ReadRecords, r.Delivered)
		}
	}
}

// withdrawSome submits records of which some are withdrawn after a random time, and returns the
// outcomes.
func withdrawSome(t *testing.T, in *intake.Intake, rnd *rand.Rand) (outcomes [60]error) {
	var clients sync.WaitGroup
	for k := range outcomes {
		text, deadline := fmt.Sprint(k), time.Duration(1+rnd.IntN(20))*time.Second
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
		var s *intake.Submission
		if rnd.IntN(2) == 0 {
			s = identify(t, in, text, lines(text))
		} else {
			s = submit(t, in, lines(text))
		}
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			if s.Wait(ctx) != nil {
				grace, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				s.Withdraw(grace)
				cancel()
			}
			outcomes[k] = s.Wait(ctx)
		})
	}
	clients.Wait()
	return outcomes
}
