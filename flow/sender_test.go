package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

func TestNewRefuses(t *testing.T) {
	w, settled := nothing{}, func(Item[int], Settlement) {}
	for _, c := range []struct {
		o    Options[int]
		want string
	}{
		{Options[int]{Lanes: []Lane[int]{{Worker: w}}, Settled: settled}, "flow: lane 0 has no " +
			"name; each lane needs a unique name"},
		{Options[int]{Lanes: []Lane[int]{{Name: "a"}}, Settled: settled},
			`flow: lane "a" has no worker`},
		{
			Options[int]{Lanes: []Lane[int]{{Name: "a", Worker: w}, {Name: "a", Worker: w}},
				Settled: settled},
			`flow: two lanes are named "a"; each lane needs a unique name`,
		},
		{
			Options[int]{Lanes: []Lane[int]{{Name: "a", Worker: w, Limits: Limits{InFlight: -1}}},
				Settled: settled},
			`flow: lane "a": Limits.InFlight is -1; want a number above 0, or 0 for none`,
		},
		{Options[int]{Settled: settled, Abandon: -1}, "flow: Options.Abandon is -1ns; want a " +
			"duration, or 0 for 1m0s"},
	} {
		if _, err := New(c.o); err == nil || err.Error() != c.want {
			t.Errorf("New: %v\nwant %s", err, c.want)
		}
	}
}

func TestDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		s := mustSender(t,
			d.options(d.lane("a", takes[int](time.Second)), d.lane("b", takes[int](2*time.Second))))
		if err := s.Run(t.Context(), these(values(1, 2, 3, 4, 5, 6, 7)...)); err != nil {
			t.Fatal(err)
		}
		d.wantSettled(1, 2, 3, 4, 5, 6, 7)
		if st := d.settled[1]; st != (Settlement{Attempts: 1, Lane: "a"}) {
			t.Errorf("settlement of 1 is %+v", st)
		}
		if err := s.Run(t.Context(), these[int]()); err == nil ||
			err.Error() != "flow: Run was called before; make a new Sender" {
			t.Errorf("a second Run: %v", err)
		}
	})
}

func TestProducerErrorFinishesWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		wrong := errors.New("disk gone")
		given := 0
		p := ProducerFunc[int](func(context.Context) (Item[int], error) {
			if given == 3 {
				return Item[int]{}, wrong
			}
			given++
			return Item[int]{Value: given}, nil
		})
		err := mustSender(t, d.options(d.lane("a", takes[int](time.Second)))).Run(t.Context(), p)
		if err != wrong {
			t.Fatalf("Run: %v, want %v", err, wrong)
		}
		d.wantSettled(1, 2, 3)
	})
}

func TestStopByContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		ctx, stop := context.WithCancelCause(t.Context())
		sigterm := errors.New("SIGTERM")
		time.AfterFunc(3*time.Second, func() { stop(sigterm) })
		causes := make(chan error, 2)
		slow := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			if a.Value == 1 {
				return Report{}, nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			time.Sleep(2 * time.Second) // it returns soon, not at once
			if a.Value == 2 {
				return Report{}, nil // delivered after the stop
			}
			return Report{}, ctx.Err()
		})
		o := d.options(d.lane("a", slow))
		o.Lanes[0].Limits.InFlight = 1
		o.Lanes = append(o.Lanes, d.lane("b", slow), d.lane("c", slow))
		err := mustSender(t, o).Run(ctx, these(values(1, 2, 3)...))
		if err != sigterm {
			t.Fatalf("Run: %v, want %v", err, sigterm)
		}
		if got := time.Since(d.start); got != 5*time.Second {
			t.Errorf("Run returned after %v, want 5s: it waits for Delivers", got)
		}
		for range 2 {
			if cause := <-causes; cause != sigterm {
				t.Errorf("an attempt ended by %v, want %v", cause, sigterm)
			}
		}
		if len(d.settled) != 2 || d.released[3] != 1 {
			t.Errorf("settled %v, released %v; want 1 and 2 settled, 3 released as left over",
				d.settled, d.released)
		}
		if len(d.failures) != 0 {
			t.Errorf("failures %v: those were the stop's", d.failures)
		}
	})
}

func TestStopWhileTheProducerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := mustSender(t, d.options(d.lane("a", takes[int](0)))).Run(ctx,
			idle[int]()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Run: %v", err)
		}
		// An item that Next returns after ctx is done is released.
		late := ProducerFunc[int](func(ctx context.Context) (Item[int], error) {
			<-ctx.Done()
			time.Sleep(time.Second) // the loop has already handled the end of ctx
			return Item[int]{Value: 7}, nil
		})
		d = newLog[int](t)
		ctx, stop = context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := mustSender(t, d.options(d.lane("a", takes[int](0)))).Run(ctx,
			late); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Run: %v", err)
		}
		if d.released[7] != 1 || len(d.settled) != 0 {
			t.Errorf("released %v, settled %v", d.released, d.settled)
		}
	})
}

func TestAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		hang := hangs[int]()
		once := WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
			if a.Number > 1 {
				return Report{}, nil
			}
			r, err := hang(ctx, a)
			if got := time.Since(d.start); got != time.Minute || !errors.Is(err, ErrAbandoned) {
				t.Errorf("attempt 1 ended at %v by %v, want %v by %v", got, err, time.Minute,
					ErrAbandoned)
			}
			return r, fmt.Errorf("post: %w", err)
		})
		o := d.options(d.lane("a", once))
		o.Control.Timeout = -1
		mustRun(t, o, these(values(1)...))
		d.wantSettled(1)
		if len(d.failures) != 1 || d.failures[0].Outcome != control.TimedOut ||
			d.failures[0].Lane != "a" || d.failures[0].Number != 1 {
			t.Errorf("failures %+v, want one time-out of attempt 1 at a", d.failures)
		}
	})
}

func TestSetLanesWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		o := d.options()
		s := mustSender(t, o)
		steps := []struct {
			at    time.Duration
			lanes []Lane[int]
		}{
			{1 * time.Second, []Lane[int]{d.lane("a", takes[int](time.Second))}},
			{5 * time.Second, []Lane[int]{d.lane("b", takes[int](time.Second))}}, // a drains
			// a is added again, b drains
			{9 * time.Second, []Lane[int]{d.lane("a", takes[int](0)), d.lane("c", takes[int](0))}},
		}
		for _, step := range steps {
			time.AfterFunc(step.at, func() {
				if err := s.SetLanes(step.lanes); err != nil {
					t.Errorf("SetLanes: %v", err)
				}
			})
		}
		n := 0
		p := ProducerFunc[int](func(ctx context.Context) (Item[int], error) {
			if n == 1 && time.Since(d.start) < time.Second {
				t.Errorf("asked for a second item at %v, but no lane was there for the first "+
					"before 1s", time.Since(d.start))
			}
			if n == 9 {
				return Item[int]{}, io.EOF
			}
			n++
			at := time.Duration(n)*time.Second + time.Second/2
			return Item[int]{Value: n}, sleep(ctx, time.Until(d.start.Add(at)))
		})
		if err := s.SetLanes([]Lane[int]{{Name: "x"}}); err == nil {
			t.Error("SetLanes took a lane without a worker")
		}
		if err := s.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		d.wantSettled(1, 2, 3, 4, 5, 6, 7, 8, 9)
		for i, start := range d.starts {
			switch {
			case i < 4 && start != fmt.Sprintf("%d a", i+1),
				i >= 4 && i < 8 && start != fmt.Sprintf("%d b", i+1),
				i == 8 && strings.HasSuffix(start, "b"):
				t.Errorf("starts are %v", d.starts)
			}
		}
		if _, names := s.Status(); !slices.Contains(names, "a") || !slices.Contains(names, "c") ||
			slices.Contains(names, "b") {
			t.Errorf("names at the end are %q", names)
		}
	})
}

func TestItemsThatMeanNothingStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			it   Item[int]
			want string
		}{
			{Item[int]{Cost: -1}, "flow: item 1 costs -1; want a number above 0, or 0 for 1"},
			{Item[int]{Cost: math.NaN()}, "flow: item 1 costs NaN; want a number above 0, or " +
				"0 for 1"},
			{Item[int]{Cost: math.Inf(1)}, "flow: item 1 costs +Inf; want a number above 0, or " +
				"0 for 1"},
			{Item[int]{Bytes: -5}, "flow: item 1 has -5 bytes; want 0 or more"},
		} {
			d := newLog[int](t)
			err := mustSender(t, d.options(d.lane("a", takes[int](0)))).Run(t.Context(),
				these(c.it))
			if err == nil || err.Error() != c.want || d.released[0] != 1 {
				t.Errorf("Run: %v, want %s; released %d", err, c.want, d.released[0])
			}
		}
	})
}

func TestMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ limit, item, want int64 }{{100, 30, 120}, {100, 1000, 1000},
			{-1, 30, 12 * 30}} {
			d := newLog[int](t)
			var held atomic.Int64
			most := int64(0)
			n := 0
			o := d.options()
			for i := range 12 {
				o.Lanes = append(o.Lanes, d.lane(fmt.Sprint(i), takes[int](time.Second)))
			}
			o.MaxBytes = c.limit
			noted := o.Settled
			o.Settled = func(it Item[int], s Settlement) { held.Add(-it.Bytes); noted(it, s) }
			p := ProducerFunc[int](func(context.Context) (Item[int], error) {
				if n++; n > 12 {
					return Item[int]{}, io.EOF
				}
				most = max(most, held.Add(c.item))
				return Item[int]{Value: n, Bytes: c.item}, nil
			})
			mustRun(t, o, p)
			if most != c.want || len(d.settled) != 12 {
				t.Errorf("limit %d, items of %d: %d bytes held at most, want %d; %d settled",
					c.limit, c.item, most, c.want, len(d.settled))
			}
		}
	})
}
