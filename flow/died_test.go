package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/flow/control"
)

var errSegfault = errors.New("signal: segmentation fault")

// dies returns a worker that dies of values that contain an x. The parameter way selects how the
// worker reports its death: "panic", "split" or an error.
func dies(way string, deaths map[string]int) WorkerFunc[string] {
	return func(_ context.Context, a Attempt[string]) (Report, error) {
		if !strings.Contains(a.Value, "x") {
			return Report{}, nil
		}
		deaths[a.Value]++
		switch {
		case way == "panic":
			panic(errSegfault)
		case way == "split" && len(a.Value) > 1:
			s := &Split[string]{Err: errSegfault}
			for i := range a.Value {
				if s.Rest = append(s.Rest,
					Item[string]{Value: a.Value[i : i+1]}); a.Value[i] == 'x' {
					s.Died = i + 1
					deaths["x"]++
				}
			}
			return Report{}, s
		}
		return Report{}, fmt.Errorf("child: %w", &Died{Err: errSegfault})
	}
}

// TestDied checks that an item that kills workers is cut until only the record that kills them is
// left. This record is dead-lettered with the reason, and all other records are delivered.
func TestDied(t *testing.T) {
	for way, want := range map[string]map[string]int{
		// The whole item is refused and halved after three deaths. A half is halved again after
		// one death. x cannot be halved: it is dead-lettered after three deaths. With "split", the
		// worker itself names x as the piece that killed it, so that nothing is halved.
		"error": {"abcdxfgh": 3, "xfgh": 1, "xf": 1, "x": 3},
		"panic": {"abcdxfgh": 3, "xfgh": 1, "xf": 1, "x": 3},
		"split": {"abcdxfgh": 1, "x": 3},
	} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newLog[string](t)
				deaths := map[string]int{}
				o := d.options(d.lane("a", dies(way, deaths)))
				o.Lanes[0].Limits.InFlight = 1
				o.Bisect = halves
				var deadLettered []string
				told := 0
				o.Failed = func(_ context.Context, _ Item[string], f Failure) {
					if f.Died {
						told++
					}
				}
				o.DeadLetter = func(_ context.Context, it Item[string], refusal error) error {
					deadLettered = append(deadLettered, it.Value)
					if !errors.Is(refusal, errSegfault) ||
						!strings.Contains(refusal.Error(), "3 workers died of it") {
						t.Errorf("refusal is %v", refusal)
					}
					return nil
				}
				mustRun(t, o, these(values("abcdxfgh", "ijk")...))
				if !slices.Equal(deadLettered, []string{"x"}) || !d.settled["x"].DeadLettered ||
					!(len(d.settled) > 2) {
					t.Errorf("dead-lettered %v, settled %v", deadLettered, d.settled)
				}
				for value, n := range want {
					if deaths[value] != n {
						t.Errorf("workers died %d times of %q, want %d", deaths[value], value, n)
					}
				}
				if told == 0 {
					t.Error("Failed never says that a worker died")
				}
			})
		})
	}
}

// TestDiedWithoutDeadLetter checks that without DeadLetter, an item that kills workers is retried
// without end, like any failure.
func TestDiedWithoutDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[string](t)
		deaths := 0
		o := d.options(d.lane("a",
			WorkerFunc[string](func(_ context.Context, a Attempt[string]) (Report, error) {
				if a.Value == "x" && deaths < 12 {
					deaths++
					return Report{}, &Died{Err: errSegfault}
				}
				return Report{}, nil
			})))
		o.DeadLetter = nil
		o.Control.Poison = control.Poison{Deaths: 2, Refuse: true}
		mustRun(t, o, these(values("a", "x", "b")...))
		d.wantSettled("a", "b", "x")
		if deaths != 12 {
			t.Errorf("%d deaths, want 12", deaths)
		}
	})
}
