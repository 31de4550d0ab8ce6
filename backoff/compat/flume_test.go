package compat

import (
	"math"
	"testing"
	"time"
)

// Flume 1.11 dies of a maxBackoff near 2^31: its doubling wraps, and Thread.sleep refuses the negative wait. Ours never does.
func TestFlumeDoesNotOverflow(t *testing.T) {
	for _, limit := range []time.Duration{math.MaxInt32 * time.Millisecond, 1 << 31 * time.Millisecond, math.MaxInt64} {
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
		t.Errorf("Flume's own 25th wait is %v, want the negative one that it dies of", wait)
	}
}
