package flow

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// blockedWorker holds each delivery until release is closed or its context ends. When release is
// closed, the first attempt of an item returns the error in the field fail, and later attempts
// deliver.
type blockedWorker struct {
	release chan struct{}
	fail    error
	causes  chan error // of contexts that ended
}

func (w *blockedWorker) Deliver(ctx context.Context, a Attempt[int]) (Report, error) {
	select {
	case <-w.release:
		if a.Number > 1 {
			return Report{}, nil
		}
		return Report{}, w.fail
	case <-ctx.Done():
		w.causes <- context.Cause(ctx)
		return Report{}, context.Cause(ctx)
	}
}

// upTo is a producer of the numbers from 1 to n, then io.EOF.
type upTo struct{ next, n int }

func (p *upTo) Next(context.Context) (Item[int], error) {
	if p.next == p.n {
		return Item[int]{}, io.EOF
	}
	p.next++
	return Item[int]{Value: p.next, Bytes: 10}, nil
}

// TestWithdraw checks the effect of withdrawing 20 items, or only the unsent ones, while two are in
// flight at a worker that does not answer.
func TestWithdraw(t *testing.T) {
	failed := errors.New("connection reset")
	for _, c := range []struct {
		name                 string
		kind                 Withdrawal
		onlyUnsent           bool
		fail                 error
		delivered, withdrawn int
		canceled             int
	}{
		{"in flight is delivered", StopSending, false, nil, 2, 18, 0},
		{"only unsent, in flight is delivered", StopSending, true, nil, 2, 18, 0},
		{"only unsent, in flight fails", StopSending, true, failed, 2, 18, 0},
		{"in flight fails", StopSending, false, failed, 0, 20, 0},
		{"in flight is canceled", CancelAttempts, false, nil, 0, 20, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &blockedWorker{release: make(chan struct{}), fail: c.fail,
					causes: make(chan error, 2)}
				var kind atomic.Int32
				var delivered, withdrawn, released []int
				s, err := New(Options[int]{
					Lanes:   []Lane[int]{{Name: "v", Worker: w}, {Name: "w", Worker: w}},
					Control: control.Config{Window: window.Fixed{Size: 1}, Replay: 1000},
					Withdrawn: func(_ Item[int], sent bool) Withdrawal {
						if sent && c.onlyUnsent {
							return NotWithdrawn
						}
						return Withdrawal(kind.Load())
					},
					Settled: func(it Item[int], s Settlement) {
						switch {
						case s.DeadLettered:
							t.Errorf("item %d was dead-lettered", it.Value)
						case s.Withdrawn:
							withdrawn = append(withdrawn, it.Value)
						default:
							delivered = append(delivered, it.Value)
						}
					},
					Released: func(it Item[int]) { released = append(released, it.Value) },
				})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- s.Run(t.Context(), &upTo{n: 20}) }()
				synctest.Wait()
				kind.Store(int32(c.kind))
				s.Withdraw()
				synctest.Wait()
				if n := len(w.causes); n != c.canceled {
					t.Errorf("%d attempts were canceled, want %d", n, c.canceled)
				}
				for range len(w.causes) {
					if err := <-w.causes; !errors.Is(err, ErrWithdrawn) {
						t.Errorf("an attempt ended by %v", err)
					}
				}
				close(w.release)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				slices.Sort(released)
				if len(delivered) != c.delivered || len(withdrawn) != c.withdrawn ||
					len(slices.Compact(released)) != 20 {
					t.Errorf("delivered %v, withdrawn %v, released %v", delivered, withdrawn,
						released)
				}
				status, _ := s.Status()
				if status.Withdrawn+status.Settled > 20 ||
					status.ReplayBytes != int64(10*c.delivered) {
					t.Errorf("%d settled, %d withdrawn, %d bytes held", status.Settled,
						status.Withdrawn, status.ReplayBytes)
				}
			})
		})
	}
}
