package load

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const stepBits = 4 // 16 steps an octave: a quantile is at most 6 % off

// Delays is a histogram of durations. It may be used by many goroutines.
type Delays struct {
	counts [64 << stepBits]atomic.Int64
	total  atomic.Int64
}

// Add counts one.
func (d *Delays) Add(delay time.Duration) {
	d.counts[slot(uint64(max(delay, 0)))].Add(1)
	d.total.Add(1)
}

// slot is the octave of n with the next stepBits bits below its first.
func slot(n uint64) int {
	if n < 1<<stepBits {
		return int(n)
	}
	octave := bits.Len64(n) - 1 - stepBits
	return octave<<stepBits + int(n>>octave)
}

// lowest is the smallest number of a slot.
func lowest(slot int) uint64 {
	if slot < 2<<stepBits {
		return uint64(slot)
	}
	octave := slot>>stepBits - 1
	return uint64(slot-octave<<stepBits) << octave
}

// Quantile is the duration that a share q of those counted do not exceed, but for the width of a
// step; 0 where none was.
func (d *Delays) Quantile(q float64) time.Duration {
	left := max(1, int64(math.Ceil(q*float64(d.total.Load()))))
	for i := range d.counts {
		if left -= d.counts[i].Load(); left <= 0 {
			return time.Duration(lowest(i))
		}
	}
	return 0
}
