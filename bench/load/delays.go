package load

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const stepBits = 4 // 16 steps an octave: a quantile is at most 6 % off

// Delays is a histogram of durations. It is safe for concurrent use.
type Delays struct {
	counts [64 << stepBits]atomic.Int64
	total  atomic.Int64
}

// Add counts one duration.
func (d *Delays) Add(delay time.Duration) {
	d.counts[slot(uint64(max(delay, 0)))].Add(1)
	d.total.Add(1)
}

// slot returns the index in Delays.counts for n. Its high bits are the octave, counted from 1, and
// its low stepBits bits are those that follow the first one bit of n. Each n below 16 has its own
// slot.
func slot(n uint64) int {
	if n < 1<<stepBits {
		return int(n)
	}
	octave := bits.Len64(n) - 1 - stepBits
	return octave<<stepBits + int(n>>octave)
}

// lowest returns the smallest number of a slot.
func lowest(slot int) uint64 {
	if slot < 2<<stepBits {
		return uint64(slot)
	}
	octave := slot>>stepBits - 1
	return uint64(slot-octave<<stepBits) << octave
}

// Quantile returns the duration that a share q of the values do not exceed, with an error of at
// most the width of a step. It returns 0 if there are no values.
func (d *Delays) Quantile(q float64) time.Duration {
	left := max(1, int64(math.Ceil(q*float64(d.total.Load()))))
	for i := range d.counts {
		if left -= d.counts[i].Load(); left <= 0 {
			return time.Duration(lowest(i))
		}
	}
	return 0
}
