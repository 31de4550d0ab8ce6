//penstock:pure

// Package recent counts events within a sliding window of time. It reads no clock: callers pass
// the time in, as the time since some origin. The time must not decrease.
package recent

import "time"

// Parts is the number of equal parts of a window. As time passes, the window drops its oldest part
// as a whole.
const Parts = 10

// Window holds two counts, such as calls and failures. Make one with [New].
type Window struct {
	width  time.Duration // length of a part
	newest int64         // number of the newest part, counted from time 0
	parts  [Parts][2]int64
	sums   [2]int64
}

// New returns a window of the given length.
func New(length time.Duration) Window { return Window{width: max(length/Parts, 1)} }

// Add adds n to the count with the given index, 0 or 1.
func (w *Window) Add(now time.Duration, which int, n int64) {
	w.advance(now)
	w.parts[w.newest%Parts][which] += n
	w.sums[which] += n
}

// TakeOut removes one event from the newest part of the count with the given index. If this part
// has none, because the window has moved on, TakeOut does nothing.
func (w *Window) TakeOut(now time.Duration, which int) {
	if w.advance(now); w.parts[w.newest%Parts][which] > 0 {
		w.Add(now, which, -1)
	}
}

// Sums returns both counts within the window.
func (w *Window) Sums(now time.Duration) [2]int64 {
	w.advance(now)
	return w.sums
}

// Clear sets both counts to 0.
func (w *Window) Clear() { *w = Window{width: w.width} }

// advance drops the parts that are older than the window.
func (w *Window) advance(now time.Duration) {
	at := int64(now / w.width)
	if at-w.newest >= Parts {
		w.Clear()
		w.newest = at
		return
	}
	for w.newest < at {
		w.newest++
		old := &w.parts[w.newest%Parts]
		w.sums[0] -= old[0]
		w.sums[1] -= old[1]
		*old = [2]int64{}
	}
}
