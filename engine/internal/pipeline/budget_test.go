package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// of returns a batch of the given size.
func of(bytes int) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = make([]byte, 0, bytes)
	return b
}

// TestBudgetCountsWhatBatchesTake checks that batches are charged their actual size, not the
// maximum size of a batch.
func TestBudgetCountsWhatBatchesTake(t *testing.T) {
	const total, small = 32 << 20, 256 << 10
	u := newBudget(total, 8<<20)
	n := 0
	for ; !u.exhausted(); n++ {
		b := of(small)
		if err := u.acquire(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		u.correct(b)
	}
	if want := total / small; n < want*3/4 || n > want {
		t.Errorf("%d batches of 256 KiB in 32 MiB, want nearly %d", n, want)
	}
}

// TestBudgetOfLargeBatches checks that two batches are always admitted, even if they are larger
// than the budget. A third one is admitted when one of them is released.
func TestBudgetOfLargeBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newBudget(1<<20, 256<<10)
		a, b, c := of(8<<20), of(8<<20), of(1)
		for _, large := range []*stream.Batch{a, b} {
			if err := u.acquire(t.Context(), large); err != nil {
				t.Fatal(err)
			}
			u.correct(large)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := u.acquire(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a third one: %v, want to wait", err)
		}
		got := make(chan error, 1)
		go func() { got <- u.acquire(t.Context(), c) }()
		synctest.Wait()
		u.freed(a)
		synctest.Wait()
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal("one of two is gone, and the third waits")
		}
		u.freed(b)
		u.freed(c)
		if u.used != 0 || len(u.taken) != 0 {
			t.Errorf("%d bytes of %d batches are still charged", u.used, len(u.taken))
		}
	})
}

// TestBudgetLearns checks that the budget, having learned its estimate from small batches, corrects
// it with the first large batch. So the total is exceeded by at most one large batch.
func TestBudgetLearns(t *testing.T) {
	const total = 8 << 20
	u := newBudget(total, 64<<10)
	var all []*stream.Batch
	fill := func(bytes int) {
		for !u.exhausted() {
			b := of(bytes)
			if err := u.acquire(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			u.correct(b)
			all = append(all, b)
		}
	}
	fill(16 << 10)
	for _, b := range all[:len(all)/2] {
		u.freed(b)
	}
	fill(1 << 20)
	if u.used > total+1<<20 {
		t.Errorf("%d bytes charged of %d", u.used, total)
	}
	u.freed(of(1)) // never charged: the reader stopped waiting before
	if u.used < total/2 {
		t.Errorf("%d bytes charged after a stranger was freed", u.used)
	}
}
