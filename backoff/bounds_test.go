package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// TestBounds draws 100,000 walks of 70 steps from each policy. It checks that no draw leaves Bounds
// and that the mean of the draws is the mean that Bounds returns. It also checks that draws do not
// pile up on the highest wait, and that the jitter remains at the cap. Seeds are fixed. The
// comparison of means rejects a correct policy with a total probability below 1e-7.
func TestBounds(t *testing.T) {
	walks, all := 100_000, true
	if testing.Short() || raceEnabled {
		walks, all = 5_000, false
	}
	for _, c := range every() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := backoff.Validate(c.p); err != nil {
				t.Fatal(err)
			}
			src := seeded(42)
			states := make([]backoff.State, walks)
			widest := 0.0
			for n := range 70 {
				var d deal
				for i := range states {
					wait, next, ok := c.p.Next(states[i], src)
					if !ok {
						break
					}
					states[i] = next
					d.add(float64(wait))
				}
				// For some policies Bounds computes an integral, which is slow under the race
				// detector.
				if !all && n > 20 && n < 69 && d.n > 0 {
					continue
				}
				lowest, mean, highest := backoff.Bounds(c.p, n)
				if d.n == 0 {
					if lowest != 0 || mean != 0 || highest != 0 {
						t.Fatalf("step %d is past the end, with bounds %v, %v, %v", n, lowest, mean,
							highest)
					}
					return
				}
				d.check(t, n, float64(lowest), float64(mean), float64(highest))
				if sd := d.deviation(); sd < widest/2 {
					t.Errorf("step %d: deviation %v has fallen from %v", n, time.Duration(sd),
						time.Duration(widest))
				} else {
					widest = max(widest, sd)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// deal holds the draws of one step.
type deal struct {
	n                    int
	atLowest, atHighest  int // draws that came to the extremes
	lowest, highest      float64
	first, sum, sumOfTwo float64 // sums of the distances from the first draw
}

func (d *deal) add(x float64) {
	if d.n == 0 {
		d.first, d.lowest, d.highest = x, x, x
	}
	d.n++
	if x < d.lowest {
		d.lowest, d.atLowest = x, 0
	}
	if x == d.lowest {
		d.atLowest++
	}
	if x > d.highest {
		d.highest, d.atHighest = x, 0
	}
	if x == d.highest {
		d.atHighest++
	}
	d.sum += x - d.first
	d.sumOfTwo += (x - d.first) * (x - d.first)
}

func (d *deal) deviation() float64 {
	mean := d.sum / float64(d.n)
	return math.Sqrt(max(d.sumOfTwo/float64(d.n)-mean*mean, 0))
}

func (d *deal) check(t *testing.T, n int, lowest, mean, highest float64) {
	t.Helper()
	if d.lowest < lowest || d.highest > highest {
		t.Errorf("step %d: draws from %v to %v ns leave the bounds %v to %v ns", n, d.lowest,
			d.highest, lowest, highest)
	}
	got, sd := d.first+d.sum/float64(d.n), d.deviation()
	if off := 6.5*sd/math.Sqrt(float64(d.n)) + mean*0.01 + 1; math.Abs(got-mean) > off {
		t.Errorf("step %d: mean %.0f ns, Bounds says %.0f, within %.0f", n, got, mean, off)
	}
	if highest > lowest && sd == 0 {
		t.Errorf("step %d: the jitter is lost: always %v ns of %v to %v", n, got, lowest, highest)
	}
	// If draws above a cap are cut to the cap, the highest wait is far more frequent than the
	// others. In a policy with few possible waits, such as 0 to 7 slots, the highest wait is
	// frequent, too, but about as frequent as the lowest.
	if highest-lowest > 1e6 && d.highest == highest && d.atHighest > d.n/200 &&
		d.atHighest > 2*d.atLowest {
		t.Errorf("step %d: %d of %d draws are on the highest wait, %v ns", n, d.atHighest, d.n,
			highest)
	}
}

func TestBoundsOfAnotherPackagesPolicy(t *testing.T) {
	if low, mean, high := backoff.Bounds(foreign{}, 3); low != 0 || mean != 0 ||
		high != math.MaxInt64 {
		t.Errorf("Bounds = %v, %v, %v; want that nothing is known", low, mean, high)
	}
	if err := backoff.Validate(foreign{}); err != nil {
		t.Errorf("Validate = %v, want nil", err)
	}
}

func TestValidateNilPart(t *testing.T) {
	for name, p := range map[string]backoff.Policy{
		"Limit":    backoff.Limit(nil, 3),
		"Then":     backoff.Then(backoff.Fixed(time.Second), 3, nil),
		"FirstNow": backoff.FirstNow(nil),
		"Sum":      backoff.Sum(backoff.Fixed(time.Second), nil),
		"Max":      backoff.Max(nil),
	} {
		if err := backoff.Validate(p); err == nil {
			t.Errorf("%s: Validate accepts a nil policy", name)
		}
	}
}
