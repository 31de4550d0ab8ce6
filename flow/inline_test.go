package flow

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// goroutine returns the number of the caller's goroutine.
func goroutine() string {
	buf := make([]byte, 64)
	buf = buf[:runtime.Stack(buf, false)]
	n := len("goroutine ")
	for i := n; i < len(buf); i++ {
		if buf[i] == ' ' {
			return string(buf[n:i])
		}
	}
	return ""
}

// TestInlineWorkerRunsOnProducer checks that the goroutine that produced an item calls the inline
// worker and the callbacks of the item, so that no other goroutine is woken.
func TestInlineWorkerRunsOnProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		producing, elsewhere, n := "", 0, 0
		where := func(what string) {
			if g := goroutine(); g != producing {
				elsewhere++
				t.Logf("%s %d on goroutine %s, the producer's is %s", what, n, g, producing)
			}
		}
		o := d.options(Lane[int]{Name: "drop", Inline: true,
			Worker: WorkerFunc[int](func(context.Context, Attempt[int]) (Report, error) {
				where("Deliver")
				return Report{}, nil
			})})
		settled := o.Settled
		o.Settled = func(it Item[int], s Settlement) { where("Settled"); settled(it, s) }
		var want []int
		mustRun(t, o, ProducerFunc[int](func(context.Context) (Item[int], error) {
			producing = goroutine()
			if n == 0 {
				synctest.Wait() // the goroutine of Run may still handle events
			}
			if n++; n > 1000 {
				return Item[int]{}, io.EOF
			}
			want = append(want, n)
			return Item[int]{Value: n}, nil
		}))
		d.wantSettled(want...)
		if elsewhere > 0 {
			t.Errorf("%d calls of 2000 on other goroutines", elsewhere)
		}
	})
}

// TestInlineWorkerFails checks that the outcomes of an inline worker have the usual effect: after
// an error or a panic, the item is sent again, perhaps to another lane.
func TestInlineWorkerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		o := d.options(
			Lane[int]{Name: "a", Inline: true,
				Worker: WorkerFunc[int](func(_ context.Context, a Attempt[int]) (Report, error) {
					switch {
					case a.Number == 1 && a.Value%3 == 0:
						return Report{}, errors.New("not now")
					case a.Number == 1 && a.Value%3 == 1:
						panic("never")
					}
					return Report{}, nil
				})},
			d.lane("b", takes[int](time.Millisecond)))
		var list []int
		for n := range 300 {
			list = append(list, n+1)
		}
		mustRun(t, o, these(values(list...)...))
		d.wantSettled(list...)
		if len(d.failures) == 0 {
			t.Error("no failure was told of")
		}
	})
}

// TestGoexitInCallback checks that runtime.Goexit in a callback ends the goroutine of Run,
// whichever goroutine runs the loop.
func TestGoexitInCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLog[int](t).options(Lane[int]{Name: "a", Worker: takes[int](time.Second)})
		o.Settled = func(Item[int], Settlement) { runtime.Goexit() }
		s := mustSender(t, o)
		ended, returned := make(chan struct{}), false
		go func() {
			defer close(ended)
			_ = s.Run(t.Context(), these(values(1, 2)...))
			returned = true
		}()
		<-ended
		if returned {
			t.Error("Run returned")
		}
	})
}

// TestOneItemAhead checks that the Sender requests exactly one item more than it has room for. When
// the Sender stops, it releases this item, too.
func TestOneItemAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		d := newLog[int](t)
		o := d.options(Lane[int]{Name: "a", Worker: hangs[int](), Limits: Limits{InFlight: 1}})
		released := 0
		o.Released = func(Item[int]) { released++ }
		asked := 0
		s := mustSender(t, o)
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(ctx, ProducerFunc[int](func(context.Context) (Item[int], error) {
				asked++
				return Item[int]{Value: asked}, nil
			}))
		}()
		synctest.Wait()
		if asked != 2 {
			t.Errorf("one in flight, and %d items asked for, want 2", asked)
		}
		stop := errors.New("enough")
		cancel(stop)
		if err := <-ended; err != stop || released != asked {
			t.Errorf("Run: %v; %d of %d items released", err, released, asked)
		}
	})
}
