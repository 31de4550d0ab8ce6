//penstock:pure

package window

import (
	"cmp"
	"fmt"
	"time"
)

// Fixed is a window of constant size, in batches. It is the baseline of tests and comparisons, and
// the right choice if the receiver's limit is known.
type Fixed struct {
	Size int // batches in flight, 1 to 100000; 0 means 4
}

// Name returns "fixed".
func (Fixed) Name() string { return "fixed" }

// Validate returns an error if f is invalid.
func (f Fixed) Validate() error {
	if f.Size < 0 || f.Size > maxSize {
		return fmt.Errorf("fixed window of %d batches: want 1 to %d, or 0 for 4", f.Size, maxSize)
	}
	return nil
}

// New returns a window of f's size.
func (f Fixed) New() Window {
	return &fixed{size: float64(cmp.Or(f.Size, 4))}
}

// maxSize bounds the maximum of every window.
const maxSize = 100_000

type fixed struct {
	size  float64
	state State
}

func (f *fixed) Limit() float64                   { return f.size }
func (f *fixed) Batches() bool                    { return true }
func (f *fixed) OnSample(Sample)                  { f.state = Normal }
func (f *fixed) OnTimeout(time.Duration, float64) { f.state = Busy }
func (f *fixed) OnNack(time.Duration, float64)    { f.state = Busy }
func (f *fixed) OnUndo(time.Duration)             { f.state = Normal }
func (f *fixed) Reset(time.Duration)              { f.state = Unknown }
func (f *fixed) State() State                     { return f.state }
func (f *fixed) Epoch() uint32                    { return 0 }
func (f *fixed) Reason() string {
	return fmt.Sprintf("the window is fixed at %g batches", f.size)
}
