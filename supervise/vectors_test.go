package supervise

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/internal/vectors"
)

// TestVectors compares restart delays with those that were recorded from other supervisors, such as
// suture. It runs all cases in the folder supervise of the recorded values.
func TestVectors(t *testing.T) {
	dir := vectors.Dir(t)
	files, err := vectors.Load(filepath.Join(dir, "supervise"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, f := range files {
		for _, c := range f.Cases {
			cases++
			t.Run(strings.TrimSuffix(f.Name, ".json")+"/"+c.Name, func(t *testing.T) {
				switch c.Policy {
				case "suture":
					checkSuture(t, c)
				default:
					t.Fatalf("policy %q is not known here", c.Policy)
				}
				if keys := c.Params.Unread(); len(keys) > 0 && !t.Failed() {
					t.Errorf("params %q were not read: this form of %q is not known", keys,
						c.Policy)
				}
			})
		}
	}
	if cases == 0 {
		t.Errorf("no case in %s/supervise", dir)
	}
}

func checkSuture(t *testing.T, c vectors.Case) {
	decay := Decay{
		HalfLife:  time.Duration(c.Params.Float(t, "decay_s") * float64(time.Second)),
		Threshold: c.Params.Float(t, "threshold"),
		Pause:     c.Params.Duration(t, "backoff_ns"),
	}
	switch jitter := c.Params.Text(t, "jitter"); jitter {
	case "none":
		decay.Exact = true
	case "default":
	default:
		t.Fatalf("jitter %q is not known", jitter)
	}
	lives := c.Params.Durations(t, "lives_ns")
	vectors.Check(t, c, vectors.Subject{
		At: func(n int, src rand.Source) (d time.Duration, ok bool) {
			next := decayWalk(decay, lives, src)
			for range n + 1 {
				d, ok = next()
			}
			return d, ok
		},
		Walk: func(src rand.Source) func() (time.Duration, bool) {
			return decayWalk(decay, lives, src)
		},
	})
	if c.Kind == "exact" {
		checkSutureServed(t, c, decay, lives)
	}
}

// decayWalk returns the delays of one child. Its run times are lives, in turn; the last one repeats
// forever.
func decayWalk(d Decay, lives []time.Duration, src rand.Source) func() (time.Duration, bool) {
	counter, now, n := decaying{}, time.Duration(0), 0
	return func() (time.Duration, bool) {
		counter.resume(now)
		now += lives[min(n, len(lives)-1)]
		n++
		pause := counter.failed(d, now, src)
		now += pause
		return pause, true
	}
}

// checkSutureServed runs the case c with a whole supervisor, and compares the delays of its
// restarts with those of the case.
func checkSutureServed(t *testing.T, c vectors.Case, d Decay, lives []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var delays []time.Duration
		var end time.Time
		s, err := New("suture", Spec{Decay: &d, Stagger: -1},
			Child{Name: "a", Run: func(ctx context.Context) error {
				if !end.IsZero() {
					delays = append(delays, time.Since(end))
				}
				n := len(delays)
				if n == len(c.Delays) {
					cancel()
					return nil
				}
				time.Sleep(lives[min(n, len(lives)-1)])
				end = time.Now()
				return errBroken
			}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Serve: %v", err)
		}
		if len(delays) != len(c.Delays) {
			t.Fatalf("%d delays, want %d", len(delays), len(c.Delays))
		}
		for i, want := range c.Delays {
			if delays[i] != want.Duration() {
				t.Errorf("n = %d: %v, want %v", i, delays[i], want.Duration())
			}
		}
	})
}
