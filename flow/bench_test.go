package flow

import (
	"context"
	"io"
	"math"
	"testing"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// count is a producer of n empty items.
type count struct{ n int }

func (c *count) Next(context.Context) (Item[int], error) {
	if c.n == 0 {
		return Item[int]{}, io.EOF
	}
	c.n--
	return Item[int]{Value: c.n, Cost: 1, Bytes: 1}, nil
}

// nothing is a worker that delivers immediately.
type nothing struct{}

func (nothing) Deliver(context.Context, Attempt[int]) (Report, error) { return Report{}, nil }

func hundredLanes() []Lane[int] {
	lanes := make([]Lane[int], 100)
	for i := range lanes {
		lanes[i] = Lane[int]{Name: string(rune('0'+i/10)) + string(rune('0'+i%10)),
			Worker: nothing{}}
	}
	return lanes
}

func sendCount(tb testing.TB, n int, m machine) {
	tb.Helper()
	settled := 0
	o := Options[int]{Lanes: hundredLanes(), Settled: func(Item[int], Settlement) { settled++ }}
	s, err := newSender(o, m)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Run(tb.Context(), &count{n}); err != nil || settled != n {
		tb.Fatalf("Run: %v; %d of %d settled", err, settled, n)
	}
}

func mustMachine(tb testing.TB, c control.Config) machine {
	tb.Helper()
	m, err := control.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func BenchmarkSettleThroughHundredWorkers(b *testing.B) {
	const batch = 10000
	for name, m := range map[string]func() machine{
		"fifo":    func() machine { return newFifo(4, 0) },
		"control": func() machine { return mustMachine(b, control.Config{}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				sendCount(b, batch, m())
				n += batch
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "settles/s")
		})
	}
}

// TestAllocationsAnItem checks that an item costs two allocations: the context of its attempt and
// the context's cancel function.
func TestAllocationsAnItem(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: the race detector allocates, too")
	}
	const few, many = 500, 3_000
	run := func(n int) float64 {
		// A fixed window keeps the number in flight the same for few and many items.
		c := control.Config{Window: window.Fixed{Size: 1}}
		return testing.AllocsPerRun(1, func() { sendCount(t, n, mustMachine(t, c)) })
	}
	least := math.Inf(1) // the runtime's own allocations only add to the count
	for range 3 {
		least = min(least, (run(many)-run(few))/(many-few))
	}
	if least > 2.05 {
		t.Errorf("%.2f allocations an item, want at most 2", least)
	}
}
