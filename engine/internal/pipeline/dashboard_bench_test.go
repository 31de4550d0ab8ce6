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

// BenchmarkDashboard1000 is the work per second for dashboards on a route with 1,000 workers: the
// status, the frame and its encoding. Under 10 ms is under 1 % of a core.
func BenchmarkDashboard1000(b *testing.B) {
	r := config.DefaultRoute("r", "/state")
	r.Sink = use(stream.SinkRole, &fakeSink{workers: 1000})
	e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{{
		Name:   "p",
		Source: use(stream.SourceRole, &fakeSource{lines: numbered(1000), size: 1}),
		Routes: []config.Route{r},
	}}}, Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(b.Context()) }()
	ready := time.NewTicker(time.Millisecond)
	defer ready.Stop()
	for len(e.Status().Routes[0].Workers) < 1000 {
		<-ready.C
	}
	var f live.Framer
	bytes := 0
	for b.Loop() {
		s := e.picture()
		text, err := json.Marshal(f.Next(&s, time.Now()))
		if err != nil {
			b.Fatal(err)
		}
		bytes = len(text)
	}
	b.ReportMetric(float64(bytes), "bytes/frame")
	e.Drain()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
