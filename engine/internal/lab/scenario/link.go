//penstock:pure

package scenario

import "math"

// Growth is s(level) of a link's delay.
func (k *Knee) Growth(level float64) float64 {
	s := (level - 1) * k.Scale
	if k.Exp > 0 {
		s += math.Pow(k.Exp, max(0, level-k.Start)) - 1
	}
	return s
}

// Above reports whether a level is refused.
func (k *Knee) Above(level int) bool { return k.Limit > 0 && level > k.Limit }

// linkLevels bounds the search for a link's best level, because a link without a limit may become
// faster at every level. The authors of the link fixtures stop at 200, too.
const linkLevels = 200

// Best returns the maximum delivery rate of a link, and the number of batches in flight (level) at
// which the link reaches it without refusing batches. Each of l batches in flight takes delay (1 +
// jitter + s(l) + s(rate)), where rate is the resulting number of batches per second.
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

// throughput returns the rate with level batches in flight. The rate depends on the delay, and the
// delay on the rate; throughput finds the rate at which both agree.
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
