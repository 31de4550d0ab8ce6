package load

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const stepBits = 4 // 16 intervals for each power of two: a quantile is at most 6 % off

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

// slot returns the index in Delays.counts for a duration of n nanoseconds. Each n below 16 has its
// own index. For larger n, the lower 4 bits (stepBits) of the index are the 4 bits of n after its
// highest 1 bit. The upper bits of the index are the number of binary digits of n, minus 4.
// Example: 40 is 101000, with 6 digits, and its 4 bits after the first one are 0100. Its index is
// 2*16 + 4 = 36.
func slot(n uint64) int {
	if n < 1<<stepBits {
		return int(n)
	}
	octave := bits.Len64(n) - 1 - stepBits
	return octave<<stepBits + int(n>>octave)
}

// lowest returns the smallest number that has the given index.
func lowest(slot int) uint64 {
	if slot < 2<<stepBits {
		return uint64(slot)
	}
	octave := slot>>stepBits - 1
	return uint64(slot-octave<<stepBits) << octave
}

// Quantile returns the shortest duration that the share q of the values does not exceed. The error
// is at most the width of an interval of the histogram. If there are no values, Quantile returns 0.
func (d *Delays) Quantile(q float64) time.Duration {
	left := max(1, int64(math.Ceil(q*float64(d.total.Load()))))
	for i := range d.counts {
		if left -= d.counts[i].Load(); left <= 0 {
			return time.Duration(lowest(i))
		}
	}
	return 0
}
