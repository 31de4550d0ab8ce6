package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

func TestTimeoutGoesToAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		w := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			at := time.Since(d.start)
			if want := d.start.Add(at + 2*time.Second); !a.Expect.Equal(want) {
				t.Errorf("attempt %d expects an answer at %v, want %v", a.Number, a.Expect, want)
			}
			if a.Number == 1 {
				<-ctx.Done()
				if cause := context.Cause(ctx); cause != ErrSuperseded {
					t.Errorf("attempt 1 was ended by %v, want %v", cause, ErrSuperseded)
				}
				return Report{}, ctx.Err()
			}
			return Report{}, nil
		})
		o := d.options(d.lane("a", w), d.lane("b", w))
		o.Control.Timeout = 2 * time.Second
		mustRun(t, o, these(values(1)...))
		d.wantSettled(1)
		d.wantAt(1, 2*time.Second)
		if len(d.starts) != 2 || d.starts[0] == d.starts[1] || d.settled[1].Attempts != 2 {
			t.Errorf("starts %v, settled %+v; want two attempts at two workers", d.starts,
				d.settled[1])
		}
		if len(d.failures) != 0 {
			t.Errorf("failures %v: the first attempt was ended because its item had settled",
				d.failures)
		}
	})
}

func TestLateAckSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		w := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			if a.Number == 1 {
				return Report{}, sleep(ctx, 3*time.Second)
			}
			err := sleep(ctx, 1500*time.Millisecond)
			if at := time.Since(d.start); at != 3*time.Second || err != ErrSuperseded {
				t.Errorf("attempt 2 ended at %v by %v, want 3s by %v", at, err, ErrSuperseded)
			}
			return Report{}, err
		})
		o := d.options(d.lane("a", w), d.lane("b", w))
		o.Control.Timeout = 2 * time.Second
		s := mustSender(t, o)
		if err := s.Run(t.Context(), these(values(1)...)); err != nil {
			t.Fatal(err)
		}
		d.wantSettled(1)
		d.wantAt(1, 3*time.Second)
		if d.starts[0] != "1 "+d.settled[1].Lane {
			t.Errorf("starts %v, settled by %q; want the first", d.starts, d.settled[1].Lane)
		}
		st, _ := s.Status()
		late := uint64(0)
		for _, l := range st.Lanes {
			late += l.Late
		}
		if st.Settled != 1 || st.Attempts != 2 || late != 1 {
			t.Errorf("status: %d settled, %d attempts, %d late; want 1, 2, 1", st.Settled,
				st.Attempts, late)
		}
	})
}

// TestReleasedByTheLastAttempt checks that an item is released as soon as its last attempt returns,
// which may be long after it has settled.
func TestReleasedByTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		w := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			if a.Number == 1 && a.Value == 1 {
				return Report{}, sleep(ctx, 5*time.Second)
			}
			return Report{}, nil
		})
		o := d.options(d.lane("a", w), d.lane("b", w))
		o.Control.Timeout = 2 * time.Second
		at := make(map[int]time.Duration)
		noted := o.Released
		o.Released = func(it Item[int]) {
			at[it.Value] = time.Since(d.start)
			noted(it)
		}
		given := 0
		mustRun(t, o, ProducerFunc[int](func(ctx context.Context) (Item[int], error) {
			if given++; given > 2 {
				return Item[int]{}, io.EOF
			}
			return Item[int]{Value: given}, sleep(ctx, time.Duration(given-1)*10*time.Second)
		}))
		d.wantSettled(1, 2)
		d.wantAt(1, 2*time.Second)
		if at[1] != 5*time.Second || at[2] != 10*time.Second {
			t.Errorf("released at %v, want 1 at 5s and 2 at 10s", at)
		}
	})
}

func TestThrottledUntilAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		w := WorkerFunc[int](func(_ context.Context, a Attempt[int]) (Report, error) {
			if a.Value == 1 && a.Number == 1 {
				return Report{}, fmt.Errorf("post: %w",
					&Throttled{After: 5 * time.Second, Err: errors.New("429")})
			}
			return Report{}, nil
		})
		mustRun(t, d.options(d.lane("a", w)), these(values(1, 2, 3)...))
		d.wantSettled(1, 2, 3)
		for v, at := range d.at {
			if at < 5*time.Second || at > 5500*time.Millisecond {
				t.Errorf("%d settled at %v, want 5s and at most a tenth more", v, at)
			}
		}
		if len(d.failures) != 1 || d.failures[0].Outcome != control.Throttled {
			t.Errorf("failures %+v, want one throttled", d.failures)
		}
	})
}

func TestReplayBoundOpensBySaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		o := d.options(d.lane("a", takes[int](time.Second)))
		o.Control.Replay = 100
		s := mustSender(t, o)
		time.AfterFunc(time.Minute, func() {
			if st, _ := s.Status(); st.Settled != 3 || !st.ReplayBinding || st.ReplayBytes > 100 {
				t.Errorf("after a minute: %d settled, bound binds %v at %d bytes; want 3, true, "+
					"at most 100",
					st.Settled, st.ReplayBinding, st.ReplayBytes)
			}
			s.Saved(60)
		})
		time.AfterFunc(2*time.Minute, func() { s.Saved(90) })
		n := 0
		if err := s.Run(t.Context(), ProducerFunc[int](func(context.Context) (Item[int], error) {
			if n++; n > 6 {
				return Item[int]{}, io.EOF
			}
			return Item[int]{Value: n, Bytes: 30}, nil
		})); err != nil {
			t.Fatal(err)
		}
		d.wantSettled(1, 2, 3, 4, 5, 6)
		if d.at[3] >= time.Minute || d.at[4] < time.Minute || d.at[5] >= 2*time.Minute ||
			d.at[6] < 2*time.Minute {
			t.Errorf("settled at %v", d.at)
		}
	})
}

// TestTraceReplays checks that a trace is complete: another machine that gets the same events
// returns the same commands.
func TestTraceReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		w := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			switch {
			case a.Value%7 == 0 && a.Number < 3:
				return Report{}, errRefused
			case a.Value%11 == 0 && a.Number == 1:
				<-ctx.Done()
			}
			return Report{}, sleep(ctx, time.Duration(a.Value%5)*100*time.Millisecond)
		})
		o := d.options(d.lane("a", w), d.lane("b", w), d.lane("c", w))
		// Set the Sender's default window, which differs from that of the machine.
		o.Control = control.Config{Seed: 7, Window: window.Queue{}}
		var events []control.Event
		var answers [][]control.Command
		o.Trace = func(e *control.Event, do []control.Command) {
			kept := *e
			kept.Keys = slices.Clone(e.Keys)
			events = append(events, kept)
			answers = append(answers, slices.Clone(do))
		}
		list := values[int]()
		for n := range 100 {
			list = append(list,
				Item[int]{Value: n + 1,
					Keys: []string{fmt.Sprint("k", n%9), "", fmt.Sprint("k", n%9)}[:n%4]})
		}
		s := mustSender(t, o)
		if err := s.Run(t.Context(), these(list...)); err != nil {
			t.Fatal(err)
		}
		again := mustMachine(t, o.Control)
		var out []control.Command
		for i, e := range events {
			if out = again.Step(e, out[:0]); !slices.Equal(out, answers[i]) {
				t.Fatalf("event %d: the replay answers %+v, the trace says %+v", i, out, answers[i])
			}
		}
		got, want := again.Status(), s.machine.Status()
		if !reflect.DeepEqual(got, want) || got.Settled != 100 {
			t.Errorf("the replay ends with\n%+v\nwant\n%+v", got, want)
		}
	})
}

func TestKeysKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		var mu sync.Mutex
		flying := make(map[int]int) // by key
		next := make(map[int]int)   // next expected value, by key
		w := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			key := a.Value % 4
			mu.Lock()
			if flying[key]++; flying[key] > 1 {
				t.Errorf("%d items of key %d in flight", flying[key], key)
			}
			mu.Unlock()
			err := sleep(ctx, time.Duration(1+a.Value*7%5)*time.Second)
			mu.Lock()
			defer mu.Unlock()
			flying[key]--
			if err != nil || a.Value%5 == 0 && a.Number < 4 {
				return Report{}, errRefused
			}
			if want := next[key]*4 + key; a.Value != want {
				t.Errorf("key %d takes %d, want %d", key, a.Value, want)
			}
			next[key]++
			return Report{}, nil
		})
		o := d.options(d.lane("a", w), d.lane("b", w), d.lane("c", w))
		o.Control.Window = window.Fixed{Size: 3}
		o.Control.Timeout = 3 * time.Second // some are slower
		var list []Item[int]
		for n := range 60 {
			list = append(list, Item[int]{Value: n, Keys: []string{fmt.Sprint(n % 4)}})
		}
		mustRun(t, o, these(list...))
		if len(d.settled) != 60 {
			t.Errorf("%d settled, want 60", len(d.settled))
		}
	})
}
