//penstock:pure

package flow

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// link is a receiver whose delay depends on its load, as in Vector's published adaptive-concurrency fixtures.
type link struct {
	cfg       Link
	rnd       *rand.Rand
	inFlight  int // what it will answer
	begun     fifo[time.Duration]
	successes int
	failed    int
}

// growth is s(level) of a link's delay.
func (k *Knee) growth(level float64) float64 {
	s := (level - 1) * k.Scale
	if k.Exp > 0 {
		s += math.Pow(k.Exp, max(0, level-k.Start)) - 1
	}
	return s
}

func (k *Knee) above(level int) bool { return k.Limit > 0 && level > k.Limit }

func (x *sim) reachLink(a *attempt) {
	l := x.link
	for l.begun.len() > 0 && *l.begun.first() <= x.now-time.Second {
		l.begun.take()
	}
	l.begun.add(x.now)
	l.inFlight++
	level, rate := l.inFlight, l.begun.len()
	d := l.cfg.Delay
	switch {
	case l.cfg.Concurrency.above(level):
		x.refuse(a, l.cfg.Concurrency.Dropped)
		return
	case l.cfg.Rate.above(rate):
		x.refuse(a, l.cfg.Rate.Dropped)
		return
	case l.cfg.Failures > 0 && l.successes >= l.cfg.FailAfter && l.failed < l.cfg.Failures:
		l.failed++
		x.refuse(a, false)
		return
	}
	l.successes++
	share := 1 + l.cfg.Concurrency.growth(float64(level)) + l.cfg.Rate.growth(float64(rate))
	if l.cfg.Jitter > 0 {
		share += l.cfg.Jitter * l.rnd.ExpFloat64()
	}
	d = time.Duration(float64(d) * share)
	it := &x.senders[a.sender].items[a.seq-1]
	if it.served {
		x.fig.duplicate(x.now)
	} else {
		x.fig.work.spread(x.now, x.now+d, a.cost)
	}
	it.served = true
	x.reply(a, d, control.Delivered, 0)
}

// refuse answers an error after the delay, or nothing.
func (x *sim) refuse(a *attempt, drop bool) {
	if drop {
		x.link.inFlight--
		a.lost = true
		return
	}
	x.reply(a, x.link.cfg.Delay, control.Retryable, 0)
}

// linkLevels bounds the search for a link's best level: a link without a limit has none, and 200 is where its authors stop.
const linkLevels = 200

// best is the most that a link delivers per second at any level that it does not refuse, and that level: l batches in
// flight take delay (1 + jitter + s(l) + s(rate)), where rate is what that makes in a second.
func (l *Link) best() (rate float64, level int) {
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

// throughput with level batches in flight: the fixed point of the delay that its own rate causes.
func (l *Link) throughput(level float64) float64 {
	low, high := 0.0, level/l.Delay.Seconds()
	for range 60 {
		r := (low + high) / 2
		share := 1 + l.Jitter + l.Concurrency.growth(level) + max(0, l.Rate.growth(max(1, r)))
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
