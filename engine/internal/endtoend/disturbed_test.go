package endtoend

import (
	"testing"
	"time"
)

// tries is the maximum number of times that a measurement is made if the machine is too busy.
const tries = 3

// undisturbed runs a measurement, which returns the target that it has missed, or "". At the same
// time, a plain timer shows whether the machine is too busy. If a target was missed and the timer
// was late, too, the measurement is repeated.
func undisturbed(t *testing.T, measure func(t *testing.T) (missed string)) {
	t.Helper()
	for try := 1; ; try++ {
		lateness := startLateness()
		missed := measure(t)
		share := lateness()
		switch {
		case missed == "":
			return
		case share < disturbedShare || try == tries:
			t.Errorf("%s (%.1f %% of a bare timer's ticks were more than %v late)", missed,
				100*share, lateTick)
			return
		}
		t.Logf("%s; but %.1f %% of a bare timer's ticks were more than %v late: measured again",
			missed, 100*share, lateTick)
	}
}

const (
	lateTick       = 5 * time.Millisecond
	disturbedShare = 0.01
)

// startLateness starts a plain timer. It returns a function that stops the timer and returns the
// share of its ticks that were late.
func startLateness() (stop func() (share float64)) {
	stopped, late := make(chan struct{}), make(chan float64)
	go func() { late <- lateShare(stopped) }()
	return func() float64 {
		close(stopped)
		return <-late
	}
}

// lateShare returns the share of late ticks of a plain timer until stop.
func lateShare(stop <-chan struct{}) float64 {
	const every = 2 * time.Millisecond
	timer := time.NewTimer(every)
	defer timer.Stop()
	ticks, late := 0.0, 0.0
	for {
		due := time.Now().Add(every)
		timer.Reset(every)
		select {
		case <-stop:
			return late / max(1, ticks)
		case <-timer.C:
		}
		ticks++
		if time.Since(due) > lateTick {
			late++
		}
	}
}
