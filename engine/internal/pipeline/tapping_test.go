package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/tap"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestTap checks that a tap shows a record at each stage, with its id and its outcome. After the
// end of the tap, the route is not sampled.
func TestTap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := false
		sink := &fakeSink{deliver: func(ctx context.Context, a stream.Attempt) error {
			_ = retry.Sleep(ctx, 100*time.Millisecond)
			text := string(a.Value.AppendRaw(nil))
			switch {
			case strings.HasSuffix(text, "7\n"):
				return &flow.Rejected{Err: errors.New("400 unlucky")}
			case !failed && strings.HasSuffix(text, "9\n"):
				failed = true
				return errors.New("connection refused")
			}
			return nil
		}}
		drop := fakeProcessor(func(b *stream.Batch) {
			b.Split()
			for i := range b.Records {
				if strings.HasSuffix(string(b.Text(i)), "5") {
					b.Drop(i)
				}
			}
		})
		r := config.DefaultRoute("r", "/state")
		r.Sink, r.Processors = use(stream.SinkRole, sink), []config.Use{use(stream.ProcessorRole, drop)}
		r.Flow.Window, r.Flow.Size = "fixed", 1
		e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{{
			Name:   "p",
			Source: use(stream.SourceRole, &fakeSource{lines: numbered(100), size: 1}),
			Routes: []config.Route{r},
		}}}, Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Tap("p/r", "", tap.MaxRate)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Tap("p/none", "", 1); !errors.Is(err, admin.ErrNoRoute) {
			t.Errorf("of no route: %v", err)
		}
		if _, err := e.Tap("p/r", "parse", 1); err == nil || !strings.Contains(err.Error(), `no stage "parse"`) {
			t.Errorf("of no stage: %v", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		seen := outcomesOf(t, s)
		s.Close()
		name := r.Processors[0].Component.Name
		for text, want := range map[string]string{
			"line 3": "source read, 1:" + name + " kept, sink delivered",
			"line 5": "source read, 1:" + name + " dropped",
			"line 7": "source read, 1:" + name + " kept, sink rejected, sink dead",
			"line 9": "source read, 1:" + name + " kept, sink retryable, sink delivered",
		} {
			if got := strings.Join(seen[text], ", "); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
		if e.o.taps.Route("p/r").Active() {
			t.Error("the route is still tapped")
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		conserved(t, e.statusWithoutTree().Routes[0])
		measured(t, e)
	})
}

// outcomesOf receives samples until none has arrived for 5 s. For each text of a record, it returns
// the stages and outcomes.
func outcomesOf(t *testing.T, s *tap.Subscription) map[string][]string {
	t.Helper()
	seen, ids := map[string][]string{}, map[string]string{}
	for {
		select {
		case x := <-s.C():
			var record struct{ Message string }
			if err := json.Unmarshal(x.Record, &record); err != nil {
				t.Fatalf("%v: %s", err, x.Record)
			}
			seen[record.Message] = append(seen[record.Message], x.Stage+" "+x.Outcome)
			if id, known := ids[record.Message]; known && id != x.ID {
				t.Errorf("%s has the ids %s and %s", record.Message, id, x.ID)
			}
			ids[record.Message] = x.ID
		case <-time.After(5 * time.Second):
			return seen
		}
	}
}

// measured compares the histograms with the counters of the route.
func measured(t *testing.T, e *Engine) {
	t.Helper()
	// Records that a processor dropped are not sent.
	if n := sampleCount(t, e.o.latency); n != 90 {
		t.Errorf("the latency of %d batches was measured, want 90", n)
	}
	attempts := e.statusWithoutTree().Routes[0].Attempts
	if n := sampleCount(t, e.o.roundTrips); int64(n) != attempts {
		t.Errorf("the time of %d attempts was measured, want %d", n, attempts)
	}
}

// sampleCount returns the number of values in a histogram of one route.
func sampleCount(t *testing.T, histogram prometheus.Collector) uint64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(histogram)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	return families[0].Metric[0].GetHistogram().GetSampleCount()
}
