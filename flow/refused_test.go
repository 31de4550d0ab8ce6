package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// rejects returns a worker that refuses the values for which wrong returns true.
func rejects[T any](wrong func(T) bool) WorkerFunc[T] {
	return func(_ context.Context, a Attempt[T]) (Report, error) {
		if wrong(a.Value) {
			return Report{}, fmt.Errorf("post: %w", &Rejected{Err: errRefused})
		}
		return Report{}, nil
	}
}

// halves is a Bisect that halves strings.
func halves(it Item[string], _ error) []Item[string] {
	if len(it.Value) < 2 {
		return nil
	}
	mid := len(it.Value) / 2
	return []Item[string]{{Value: it.Value[:mid]}, {Value: it.Value[mid:]}}
}

func TestBisectsDownToTheRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[string](t)
		o := d.options(d.lane("a", rejects(func(s string) bool {
			return strings.Contains(s, "x")
		})))
		o.Bisect = halves
		o.DeadLetter = func(ctx context.Context, it Item[string], refusal error) error {
			if !errors.Is(refusal, errRefused) {
				t.Errorf("refusal is %v", refusal)
			}
			return sleep(ctx, time.Second)
		}
		mustRun(t, o, these(values("abcdxfgh", "ijk")...))
		d.wantSettled("abcd", "x", "f", "gh", "ijk")
		if st := d.settled["x"]; !st.DeadLettered || st.Lane != "" {
			t.Errorf("x settled as %+v, want DeadLettered", st)
		}
		for _, parent := range []string{"abcdxfgh", "xfgh", "xf"} {
			if d.released[parent] != 1 {
				t.Errorf("%q was released %d times, want once", parent, d.released[parent])
			}
		}
	})
}

func TestSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[string](t)
		w := WorkerFunc[string](func(_ context.Context, a Attempt[string]) (Report, error) {
			if a.Value != "abcd" {
				return Report{}, nil
			}
			return Report{ResumeToken: "9"},
				&Split[string]{Done: values("a"), Rest: values("b", "c"), Refused: values("d"),
					Err: errRefused}
		})
		o := d.options(d.lane("w", w))
		var deadLettered []string
		o.DeadLetter = func(_ context.Context, it Item[string], refusal error) error {
			deadLettered = append(deadLettered, it.Value)
			if !errors.Is(refusal, errRefused) || refusal.Error() != "rejected: no" {
				t.Errorf("refusal is %v", refusal)
			}
			return nil
		}
		mustRun(t, o, these(values("abcd", "e")...))
		d.wantSettled("a", "b", "c", "d", "e")
		if d.released["abcd"] != 1 || !slices.Equal(deadLettered, []string{"d"}) ||
			!d.settled["d"].DeadLettered {
			t.Errorf("released %v, dead-lettered %v, settled %v", d.released, deadLettered,
				d.settled)
		}
	})
}

func TestDeadLetterFailureStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, store := range []func(context.Context, Item[string], error) error{
			nil,
			func(context.Context, Item[string], error) error { return errors.New("disk full") },
		} {
			d := newLog[string](t)
			picky := rejects(func(s string) bool { return s == "x" })
			o := d.options(d.lane("a", picky), d.lane("b", picky))
			o.DeadLetter = store
			err := mustSender(t, o).Run(t.Context(), these(values("a", "x", "b")...))
			want := "flow: store a dead letter: disk full\npost: rejected: no"
			if store == nil {
				want = "flow: an item was refused; " +
					"set Options.DeadLetter to keep such items: post: " +
					"rejected: no"
			}
			if err == nil || err.Error() != want || !errors.Is(err, errRefused) {
				t.Errorf("Run: %v\nwant %s", err, want)
			}
			if _, ok := d.settled["x"]; ok || d.released["x"] != 1 {
				t.Errorf("x: settled %v, released %d", ok, d.released["x"])
			}
		}
	})
}
