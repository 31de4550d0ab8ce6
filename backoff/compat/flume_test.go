package compat

import (
	"math"
	"testing"
	"time"
)

// TestFlumeDoesNotOverflow checks that waits do not wrap as in Flume 1.11, where the doubling wraps
// with a maxBackoff near 2^31 and TimeUnit.sleep returns at once from a negative wait.
func TestFlumeDoesNotOverflow(t *testing.T) {
	for _, limit := range []time.Duration{math.MaxInt32 * time.Millisecond,
		1 << 31 * time.Millisecond, math.MaxInt64} {
		last := time.Duration(0)
		for _, n := range []uint32{0, 1, 2, 20, 22, 23, 24, 31, 32, 63, 64, 1000, math.MaxUint32} {
			wait := Flume{Max: limit}.wait(n)
			if wait < last || wait > limit {
				t.Errorf("Max %v: wait %d is %v, after %v", limit, n, wait, last)
			}
			last = wait
		}
	}
	if wait := (Flume{Max: math.MaxInt32 * time.Millisecond, Compat: true}).wait(24); wait >= 0 {
		t.Errorf("Flume's own 25th wait is %v, want a negative one", wait)
	}
}
