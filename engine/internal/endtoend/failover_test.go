package endtoend

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// TestFailover checks that the second sink receives records while the first sink is down, and none
// before or after that. No record may be lost.
func TestFailover(t *testing.T) {
	down := length(t, 10*time.Second, 3*time.Second)
	const rate = 200.0
	board := newBoard()
	first, second := newSlowServer(t, board, 5*rate, 1), newSlowServer(t, board, 5*rate, 2)
	count := int64(rate * (2*down + 12*time.Second).Seconds())
	e, wait := failoverPipeline(t, count, rate, first, second)
	delivered := func(i int) uint64 { return e.Status().Routes[0].Workers[i].Delivered }
	up := func(what string, i int, more uint64) {
		t.Helper()
		was := delivered(i)
		eventually(t, what, func() bool { return delivered(i) >= was+more })
	}

	up("the first sink delivers", 0, 300)
	if n := delivered(1); n > 0 {
		t.Errorf("the second sink has %d batches while the first is up", n)
	}
	first.die()
	dead := time.Now()
	up("the second sink takes over", 1, 1)
	took := time.Since(dead)
	at(t, dead.Add(down))
	first.revive()
	back := time.Now()
	up("the first sink is used again", 0, 100)
	returned := time.Since(back)
	before := delivered(1)
	up("the first sink delivers on", 0, 200)
	if n := delivered(1) - before; n > 5 {
		t.Errorf("the second sink got %d batches after the first was back", n)
	}
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	r := e.Status().Routes[0]
	t.Logf("took over after %v, returned after %v; %d attempts, %d redelivered",
		took.Round(time.Millisecond), returned.Round(time.Millisecond), r.Attempts, r.Redelivered)
	if r.Delivered != r.ReadRecords || int64(len(board.done)) != r.ReadRecords {
		t.Errorf("read %d, delivered %d, arrived %d", r.ReadRecords, r.Delivered, len(board.done))
	}
}

func failoverPipeline(t *testing.T, count int64, rate float64, servers ...*slowServer) (
	*engine.Engine, func() error) {
	t.Helper()
	config := write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  failover:
    source: { arrivals: { count: %d, rate: %g, seed: 7 } }
    sink:
      failover:
        - http: { endpoints: [%q], body: raw }
        - http: { endpoints: [%q], body: raw }
    batch: { linger: 0s }
`, count, rate, servers[0].url(), servers[1].url()))
	c, err := engine.Load(config, append(all.Components(), arrivals)...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { ended <- e.Run(ctx) }()
	eventually(t, "the route runs", func() bool { return len(e.Status().Routes[0].Workers) == 2 })
	return e, func() error { return <-ended }
}
