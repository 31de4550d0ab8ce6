//penstock:pure

package scenario

import "math"

// Growth returns the delay that load adds to the delay of a link, as a multiple of the link's base
// delay. The level is the load: the number of in-flight batches, or of batches per second.
func (k *Knee) Growth(level float64) float64 {
	s := (level - 1) * k.Scale
	if k.Exp > 0 {
		s += math.Pow(k.Exp, max(0, level-k.Start)) - 1
	}
	return s
}

// Above reports whether the link refuses batches at a level.
func (k *Knee) Above(level int) bool { return k.Limit > 0 && level > k.Limit }

// linkLevels is the maximum number of in-flight batches that Best considers. Without it, Best might
// not end: a link without a limit may become faster with each further batch. Vector's published
// tests use the same maximum.
const linkLevels = 200

// Best returns the maximum delivery rate of a link in batches per second, and the lowest level at
// which the link reaches it. The level is the number of in-flight batches. Levels at which the link
// refuses batches do not count. At level n, the mean delay of a batch is l.Delay * (1 + l.Jitter +
// g(n) + h(rate)), and rate is the delivery rate with this delay. g is l.Concurrency.Growth, and h
// is l.Rate.Growth, but at least 0 (see [Knee]).
func (l *Link) Best() (rate float64, level int) {
	most := linkLevels
	if l.Concurrency.Limit > 0 {
		most = min(most, l.Concurrency.Limit)
	}
	for n := 1; n <= most; n++ {
		if r := l.throughput(float64(n)); r > rate*(1+1e-9) {
			rate, level = r, n
		}
	}
	return rate, level
}

// throughput returns the delivery rate at a level, the number of in-flight batches. The rate
// depends on the delay, and the delay on the rate. throughput finds the rate at which the two
// agree.
func (l *Link) throughput(level float64) float64 {
	low, high := 0.0, level/l.Delay.Seconds()
	for range 60 {
		r := (low + high) / 2
		share := 1 + l.Jitter + l.Concurrency.Growth(level) + max(0, l.Rate.Growth(max(1, r)))
		if level/(l.Delay.Seconds()*share) > r {
			low = r
		} else {
			high = r
		}
	}
	if l.Rate.Limit > 0 {
		high = min(high, float64(l.Rate.Limit))
	}
	return high
}
