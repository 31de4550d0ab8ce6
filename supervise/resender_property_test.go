package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// TestRandomResenders checks that every Call returns once, regardless of the child's behavior: with
// the reply, or with the error of its dead letter. There is one incarnation at a time.
func TestRandomResenders(t *testing.T) {
	answers, letters, starts := 0, 0, 0
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			w := &resending{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 3)),
				dead: map[int]bool{}, replied: map[int]int{}}
			o := w.options()
			r, stop := resend(t, o)
			var wg sync.WaitGroup
			calls := w.n(300) + 1
			for i := range calls {
				wg.Go(func() { w.call(r, i) })
			}
			wg.Wait()
			if s := r.Status(); s.Held != 0 || s.Bytes != 0 || s.Out != 0 || s.Delayed != 0 {
				t.Errorf("seed %d: all are answered, and yet %+v", seed, s)
			}
			starts += int(r.Status().Starts)
			if err := stop(); err != supervise.ErrStopped {
				t.Errorf("seed %d: Serve: %v", seed, err)
			}
			if w.alive != 0 {
				t.Errorf("seed %d: %d incarnations after Serve", seed, w.alive)
			}
			answers += len(w.replied)
			letters += len(w.dead)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d answers, %d dead letters, %d incarnations", answers, letters, starts)
	if answers < 1000 || letters < 1000 || starts < 1000 {
		t.Error("that is too tame to show anything")
	}
}

type resending struct {
	t    *testing.T
	seed uint64

	mu      sync.Mutex
	rand    *rand.Rand
	alive   int
	dead    map[int]bool
	replied map[int]int
}

func (w *resending) n(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

func (w *resending) options() options {
	o := options{
		Child:      recipe{Name: "first", New: w.child},
		Backoff:    backoff.Exponential(10*time.Millisecond, 2, time.Second).Full(),
		Size:       func(m string) int64 { return int64(len(m)) },
		Rand:       rand.NewPCG(w.seed, 4),
		DeadLetter: w.deadLetter,
		Spill:      nil,
		Limits: supervise.Limits{
			Items: w.n(100) + 1, Bytes: int64(w.n(500) + 1), Window: w.n(50) + 1,
			MaxDeaths: w.n(4), MaxAttempts: w.n(4) * 5,
			MaxAge:   time.Duration(w.n(3)) * 10 * time.Second,
			Overflow: []supervise.Overflow{supervise.Block, supervise.DropOldest}[w.n(2)],
			Stall:    20 * time.Second, Shutdown: 15 * time.Second,
		},
	}
	if w.n(2) == 0 {
		o.Fallback, o.FallbackAfter = recipe{Name: "second", New: w.child}, w.n(5)+1
		o.FallbackFor = time.Duration(w.n(2)) * time.Second
	}
	return o
}

// call sends one message, and retries while a full buffer refuses it.
func (w *resending) call(r *supervise.Resender[int, string, string], key int) {
	time.Sleep(time.Duration(w.n(20_000)) * time.Millisecond)
	for {
		got, err := r.Call(w.t.Context(), key, fmt.Sprint(key))
		// The Resender did not accept the message.
		if !isDead(err) && (errors.Is(err, supervise.ErrFull) || errors.Is(err, errStore)) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case err == nil && got == fmt.Sprint(key) && !w.dead[key]:
			w.replied[key]++
		case isDead(err) && w.dead[key] && w.replied[key] == 0:
		default:
			w.t.Errorf("seed %d: message %d: %q, %v; dead letter: %v", w.seed, key, got, err,
				w.dead[key])
		}
		return
	}
}

func isDead(err error) bool {
	_, ok := errors.AsType[*supervise.DeadError](err)
	return ok
}

var errStore = errors.New("the dead-letter store is full")

func (w *resending) deadLetter(_ context.Context, d dead) error {
	if w.n(3) == 0 {
		return errStore
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[d.Key] {
		w.t.Errorf("seed %d: message %d has two dead letters", w.seed, d.Key)
	}
	w.dead[d.Key] = true
	return nil
}

// child takes some messages, settles some of them in some order, and may end in any way at any
// point.
func (w *resending) child() (supervise.Work[int, string, string], error) {
	if w.n(10) == 0 {
		return nil, errCrash
	}
	return func(ctx context.Context, in *inbox) error {
		w.mu.Lock()
		if w.alive++; w.alive > 1 {
			w.t.Errorf("seed %d: %d incarnations", w.seed, w.alive)
		}
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			w.alive--
			w.mu.Unlock()
		}()
		for {
			hand, err := takeAll(ctx, in)
			if err != nil {
				return err
			}
			time.Sleep(time.Duration(w.n(100)) * time.Millisecond)
			for len(hand) > 0 {
				i := w.n(len(hand))
				m := hand[i]
				hand = append(hand[:i], hand[i+1:]...)
				switch w.n(25) {
				case 0:
					return errCrash
				case 1:
					panic("x")
				case 2:
					runtime.Goexit()
				case 3:
					return nil
				case 4, 5:
					m.Nack(errCrash)
				case 6: // the message is never settled; Limits.Stall ends the child
				default:
					m.Ack(m.Value)
				}
			}
		}
	}, nil
}
