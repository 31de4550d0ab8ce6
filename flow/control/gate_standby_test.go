package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// newTiers returns a model with one lane for each of these values of Limits.Standby.
func newTiers(t *testing.T, standby ...int) *model {
	t.Helper()
	w := newLanes(t, control.Config{Timeout: time.Hour}, 1, len(standby))
	for i, n := range standby {
		w.lane(int32(i), true, control.Limits{Standby: n})
	}
	return w
}

// serve answers attempts for d: the failing lanes fail and the others deliver. It returns the
// number of attempts of each lane.
func (w *model) serve(d time.Duration, failing ...int32) map[int32]int {
	attempts := make(map[int32]int)
	for end := w.now + d; w.now < end; w.pass(50 * ms) {
		w.fill()
		for _, x := range w.running() {
			attempts[x.lane]++
			outcome := control.Delivered
			for _, f := range failing {
				if x.lane == f {
					outcome = control.Retryable
				}
			}
			w.answer(x, outcome, 0)
		}
	}
	return attempts
}

// TestStandby checks that a standby lane takes all items while all lanes with a lower Standby
// number are down, and none before and after.
func TestStandby(t *testing.T) {
	for name, c := range map[string]struct {
		standby []int
		failing []int32 // in the second phase
		used    []int32 // lanes used in the second phase, apart from probes
	}{
		"one and one":             {[]int{0, 1}, []int32{0}, []int32{1}},
		"one of two is up":        {[]int{0, 0, 1}, []int32{0}, []int32{1}},
		"both are down":           {[]int{0, 0, 1}, []int32{0, 1}, []int32{2}},
		"three, and two standbys": {[]int{0, 0, 0, 5, 5}, []int32{0, 1, 2}, []int32{3, 4}},
		"the standby is down too": {[]int{0, 1, 2}, []int32{0, 1}, []int32{2}},
		"the standby alone":       {[]int{0, 1, 2}, []int32{1, 2}, []int32{0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTiers(t, c.standby...)
			for phase, failing := range [][]int32{nil, c.failing, nil} {
				used := c.used
				if failing == nil {
					used = preferred(c.standby)
				}
				w.serve(2*time.Minute, failing...) // probes find the lanes that have recovered
				got := w.serve(10*time.Second, failing...)
				if share := shareOf(got, used); share < 0.9 {
					t.Errorf("phase %d: attempts by lane are %v, want nearly all at %v", phase, got, used)
				}
				for i, l := range w.m.Status().Lanes {
					shut := l.Gate == "standby" || l.Gate == "breaker" // breaker: not probed since
					if failing == nil && c.standby[i] > 0 && (got[int32(i)] > 0 || !shut) {
						t.Errorf("phase %d: standby %d has %d attempts and gate %q",
							phase, i, got[int32(i)], l.Gate)
					}
				}
			}
			w.drain()
		})
	}
}

// preferred returns the lanes with number 0.
func preferred(standby []int) (all []int32) {
	for i, n := range standby {
		if n == 0 {
			all = append(all, int32(i))
		}
	}
	return all
}

// shareOf returns the share of the attempts at these lanes, and 0 if there are few attempts.
func shareOf(attempts map[int32]int, lanes []int32) float64 {
	total, at := 0, 0
	for lane, n := range attempts {
		total += n
		if slices.Contains(lanes, lane) {
			at += n
		}
	}
	if total < 100 {
		return 0
	}
	return float64(at) / float64(total)
}

// TestStandbyRetry checks that a failed item is sent again to its lane if the only other lane is a
// standby lane that may take no items.
func TestStandbyRetry(t *testing.T) {
	w := newTiers(t, 0, 1)
	w.serve(time.Second)
	w.fill()
	w.answer(w.running()[0], control.Retryable, 0)
	w.drain()
}

// TestStandbySuspect checks that an item that always fails becomes a suspect although only one lane
// can fail it, because the other one is a standby lane.
func TestStandbySuspect(t *testing.T) {
	w := newLanes(t, control.Config{Timeout: -1, Retry: backoff.Fixed(10 * ms),
		Breaker: control.Breaker{Failures: -1}}, 10, 2)
	w.lane(0, true, control.Limits{})
	w.lane(1, true, control.Limits{Standby: 1})
	w.offer(1, 10)
	for range 4 {
		w.answer(w.only(1), control.Retryable, 0)
		for range 4 {
			w.offer(1, 10)
			w.answer(w.only(w.seq), control.Delivered, 0)
		}
		w.pass(20 * ms)
	}
	if s := w.m.Status(); s.Suspects != 1 {
		t.Errorf("%d suspects after four failures at the only lane in use, want 1", s.Suspects)
	}
	w.drain()
}

// TestStandbyDown checks that all lanes get probes while every lane fails, and that the first lane
// to recover takes the items.
func TestStandbyDown(t *testing.T) {
	w := newTiers(t, 0, 1)
	w.serve(10 * time.Second)
	w.serve(time.Minute, 0, 1)
	if got := w.serve(5*time.Minute, 0, 1); got[0] == 0 || got[1] == 0 {
		t.Errorf("attempts by lane are %v while all fail, want probes of both", got)
	}
	w.serve(2*time.Minute, 0)
	if got := w.serve(10*time.Second, 0); got[1] < 50 {
		t.Errorf("attempts by lane are %v after the standby has recovered", got)
	}
	w.drain()
}

// TestStandbyLanesChange checks that a standby lane takes over when the last lane with a lower
// Standby number is removed, and stops when such a lane is added.
func TestStandbyLanesChange(t *testing.T) {
	w := newTiers(t, 0, 1)
	w.serve(time.Second)
	w.lane(0, false, control.Limits{})
	if got := w.serve(10 * time.Second); got[1] < 50 {
		t.Errorf("attempts by lane are %v after the first lane has left", got)
	}
	w.lane(0, true, control.Limits{})
	if got := w.serve(10 * time.Second); got[0] < 50 || got[1] > 5 {
		t.Errorf("attempts by lane are %v after it has joined again", got)
	}
	if s := w.m.Status().Lanes[0]; s.State == window.Open {
		t.Errorf("the first lane is %+v", s)
	}
	w.drain()
}
