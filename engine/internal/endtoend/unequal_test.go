package endtoend

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/status"
)

// rates are the workers of the scenario s01-saturated, in batches per second: 655 in all.
var rates = []float64{100, 100, 100, 100, 50, 50, 50, 50, 20, 20, 10, 5}

// length returns the duration of the runs. PENSTOCK_WORKERS selects it: full is for the published
// figures, and short is for CI. If the variable has another value, the test is skipped.
func length(t *testing.T, full, short time.Duration) time.Duration {
	t.Helper()
	switch os.Getenv("PENSTOCK_WORKERS") {
	case "full":
		return full
	case "short":
		return short
	}
	t.Skip("skipped: half a minute of real servers; run `make workers` or `make workers-short`")
	return 0
}

// fleet is a set of twelve servers with one board.
type fleet struct {
	*board
	servers []*slowServer
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{board: newBoard()}
	for i, rate := range rates {
		f.servers = append(f.servers, newSlowServer(t, f.board, rate, uint64(i)))
	}
	return f
}

// start runs a pipeline from the source arrivals to the servers of the fleet. It returns the
// engine, and a function that waits for the end of the run.
func (f *fleet) start(t *testing.T, count int64, rate float64, flow string) (*engine.Engine,
	func() error) {
	t.Helper()
	var urls []string
	for _, s := range f.servers {
		urls = append(urls, fmt.Sprintf("%q", s.url()))
	}
	config := write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  unequal:
    source: { arrivals: { count: %d, rate: %g, seed: 7 } }
    sink: { http: { endpoints: [%s], body: raw } }
    batch: { linger: 0s }
    flow: { %s }
`, count, rate, strings.Join(urls, ", "), flow))
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
	return e, func() error { return <-ended }
}

// failed counts the unsuccessful attempts of a worker.
func failed(w status.Worker) uint64 { return w.Failed + w.TimedOut }

func at(t *testing.T, when time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test ended while it waited")
	}
}

// TestUnequalGoodput runs twelve unequal workers with an endless backlog. One worker hangs, and one
// dies and returns. The goodput must be at least 0.9 of the capacity of the live workers. At most 1
// % of the attempts may go to the dead worker, and everything must arrive.
func TestUnequalGoodput(t *testing.T) {
	run := length(t, 30*time.Second, 12*time.Second)
	undisturbed(t, func(t *testing.T) string { return unequalGoodput(t, run) })
}

func unequalGoodput(t *testing.T, run time.Duration) (missed string) {
	t.Helper()
	const warmup = 5 * time.Second
	f := newFleet(t)
	count := int64(655 * (run + warmup).Seconds() * 0.97)
	e, wait := f.start(t, count, 0, "dispatch: least_completion")
	start := time.Now()
	from, to := start.Add(warmup), start.Add(warmup+run)
	hangs, dies, back := from.Add(run/6), from.Add(run/3), from.Add(run*2/3)

	at(t, hangs)
	wake := f.servers[1].hangUntil()
	at(t, dies)
	f.servers[4].die()
	before := e.Status().Routes[0]
	at(t, back)
	after := e.Status().Routes[0]
	f.servers[4].revive()
	at(t, to)
	goodput := float64(f.delivered(from, to))
	wake()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	optimum := 655*run.Seconds() - 100*to.Sub(hangs).Seconds() - 50*back.Sub(dies).Seconds()
	into := float64(failed(after.Workers[4]) - failed(before.Workers[4]))
	share := into / float64(after.Attempts-before.Attempts)
	t.Logf("goodput %.3f of %.0f/s; %.0f attempts into the dead worker, %.4f of all; "+
		"attempts %d, redelivered %d",
		goodput/optimum, optimum/run.Seconds(), into, share, after.Attempts, after.Redelivered)
	if got := int64(len(f.done)); got != count {
		t.Errorf("%d of %d batches arrived", got, count)
	}
	if goodput < 0.9*optimum {
		return fmt.Sprintf("goodput is %.3f of the optimum, want at least 0.9", goodput/optimum)
	}
	if share > 0.01 {
		return fmt.Sprintf("%.4f of the attempts went into the dead worker, want at most 0.01",
			share)
	}
	return ""
}

// TestUnequalTail compares two policies that choose the worker of a batch, at 60 % load. With
// least_completion, the 99th percentile of the latency must be at most half of that with
// round_robin.
func TestUnequalTail(t *testing.T) {
	run := length(t, 30*time.Second, 10*time.Second)
	p99 := func(dispatch string) time.Duration {
		f := newFleet(t)
		rate := 0.6 * 655
		_, wait := f.start(t, int64(rate*run.Seconds()), rate, "dispatch: "+dispatch)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		var all []time.Duration
		for n, d := range f.latency {
			if float64(n) > rate*min(5, run.Seconds()/3) { // after the warm-up
				all = append(all, d)
			}
		}
		slices.Sort(all)
		return all[len(all)*99/100]
	}
	undisturbed(t, func(t *testing.T) string {
		best, plain := p99("least_completion"), p99("round_robin")
		ratio := float64(best) / float64(plain)
		t.Logf("p99 latency from the planned arrival: least_completion %v, round_robin %v (%.2f)",
			best, plain, ratio)
		if ratio > 0.5 {
			return fmt.Sprintf("least_completion's p99 is %.2f of round robin's, want at most 0.5",
				ratio)
		}
		return ""
	})
}

// TestUnequalBeforeAndAfter repeats the comparison of the article on which flow control is based
// (docs/origins/storm.md). For the same finite job, it compares hash dispatch with a fixed window
// to the default.
func TestUnequalBeforeAndAfter(t *testing.T) {
	run := length(t, 3*time.Second, time.Second)
	count := int64(655 * run.Seconds())
	took := func(flow string) time.Duration {
		f := newFleet(t)
		start := time.Now()
		_, wait := f.start(t, count, 0, flow)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if got := int64(len(f.done)); got != count {
			t.Errorf("%s: %d of %d batches arrived", flow, got, count)
		}
		return time.Since(start)
	}
	undisturbed(t, func(t *testing.T) string {
		// Other load only adds to the time, and to the short one most.
		after := time.Duration(math.MaxInt64)
		for range 3 {
			after = min(after, took("dispatch: least_completion"))
		}
		before := took("dispatch: hash, window: fixed, size: 64, timeout: 50s")
		times := float64(before) / float64(after)
		t.Logf("%d batches: before (hash, fixed window) %v, after %v: %.1f times", count, before,
			after, times)
		if times < 5 {
			return fmt.Sprintf("the old way took %.1f times as long, want at least 5", times)
		}
		return ""
	})
}
