//penstock:pure

package window

import (
	"cmp"
	"fmt"
	"time"
)

// adaptive is the common part of all windows that adapt to their worker: the window in batches (w),
// the current round, the round trip of the drained worker (a worker without a queue), and the
// figures of the last verdict. Times are in seconds.
type adaptive struct {
	w, top  float64
	round   round
	base    base
	state   State
	verdict verdict
	since   time.Duration // samples sent earlier do not reflect the current window
}

func validRange(name string, initial, top int) error {
	initial, top = filledRange(initial, top)
	switch {
	case top < 1 || top > maxSize:
		return fmt.Errorf("%s window with a maximum of %d batches: want 1 to %d", name, top,
			maxSize)
	case initial < 1 || initial > top:
		return fmt.Errorf("%s window that begins at %d batches: want 1 to its maximum, %d", name,
			initial, top)
	}
	return nil
}

func filledRange(initial, top int) (int, int) {
	return cmp.Or(initial, 1), cmp.Or(top, 1000)
}

func newAdaptive(initial, top int) adaptive {
	initial, top = filledRange(initial, top)
	return adaptive{w: float64(initial), top: float64(top)}
}

func (a *adaptive) Limit() float64 {
	if a.base.probing {
		return a.base.narrow
	}
	return a.w
}

func (a *adaptive) Epoch() uint32       { return a.base.epoch }
func (a *adaptive) Probing() bool       { return a.base.probing }
func (a *adaptive) Base() time.Duration { return seconds(a.base.value) }

func (a *adaptive) State() State {
	if a.base.probing {
		return Probing
	}
	return a.state
}

func (a *adaptive) Reason() string {
	if a.base.probing {
		return a.base.reason()
	}
	return a.verdict.reason()
}

// move sets the window to a new size for a cause other than the end of a round.
func (a *adaptive) move(c cause, to float64, s State) {
	a.verdict = verdict{cause: c, before: a.w, after: to}
	a.w, a.state = to, s
}
