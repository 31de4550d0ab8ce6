package pipeline

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/live"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// dashboardFrames runs a route with 1,000 workers and passes a function to use1000. The function
// does the work that dashboards need each second: it takes the status, makes the frame, and returns
// the encoded frame.
func dashboardFrames(t testing.TB, use1000 func(frame func() []byte)) {
	t.Helper()
	r := config.DefaultRoute("r", "/state")
	r.Sink = use(stream.SinkRole, &fakeSink{workers: 1000})
	e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{{
		Name:   "p",
		Source: use(stream.SourceRole, &fakeSource{lines: numbered(1000), size: 1}),
		Routes: []config.Route{r},
	}}}, Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	ready := time.NewTicker(time.Millisecond)
	defer ready.Stop()
	for len(e.Status().Routes[0].Workers) < 1000 {
		<-ready.C
	}
	var f live.Framer
	use1000(func() []byte {
		s := e.statusWithoutTree()
		text, err := json.Marshal(f.Next(&s, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return text
	})
	e.Drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDashboard1000 measures a frame of 1,000 workers.
func BenchmarkDashboard1000(b *testing.B) {
	dashboardFrames(b, func(frame func() []byte) {
		bytes := 0
		for b.Loop() {
			bytes = len(frame())
		}
		b.ReportMetric(float64(bytes), "bytes/frame")
	})
}

// TestDashboardCost checks that a frame of 1,000 workers takes at most 1 % of a core. One frame is
// made per second, regardless of the number of viewers. The fastest of many frames is used, because
// other processes may be running.
func TestDashboardCost(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: the race detector multiplies the time")
	}
	dashboardFrames(t, func(frame func() []byte) {
		quickest := time.Hour
		for range 50 {
			begun := time.Now()
			frame()
			quickest = min(quickest, time.Since(begun))
		}
		t.Logf("a frame of 1,000 workers takes %v, %.2f %% of a core at 1 Hz", quickest,
			100*quickest.Seconds())
		if quickest > 10*time.Millisecond {
			t.Errorf("a frame takes %v, more than 1 %% of a second", quickest)
		}
	})
}
