//penstock:pure

package window

import (
	"math"
	"time"
)

// Pool is the worker's side of [Credit]. It computes how many batches a worker lets its senders
// have in flight, in total and for each sender. It keeps just enough batches waiting that the
// worker hardly idles while answers and new batches cross the network. Each sender seen in the last
// 5 s gets an equal share. Pool is pure and not safe for concurrent use. The zero value is usable.
//
// After every round of completions, Pool compares the mean number of waiting batches with a low and
// a high bound. Below the low bound the pool grows by a batch. Above the high bound it shrinks by a
// batch, or by a fifth if the mean is far above.
//
// The bounds are chosen by mean value analysis of the closed loop: if the mean is half-way between
// them, a server with exponential service times is busy for 99 % of the time. This mean depends on
// the number of batches in the network: 0.9 batches wait if almost none are in the network, 2.6 if
// one is, and 5.6 if seven are.
type Pool struct {
	Max float64 // maximum batches in flight of all senders together; 0 means 1000

	size    float64 // batches
	n       int
	sum     float64 // sum of the waiting batches at each completion of the round
	began   time.Duration
	last    time.Duration // time of the last completion
	steady  bool          // a round has ended since the last pause
	skip    int           // remaining completions of batches that waited during the last pause
	waiting float64       // EWMA of the rounds' means
	mean    float64       // cost of a batch
	rate    float64       // completions per second
	senders map[uint64]*poolSender
	swept   time.Duration
}

type poolSender struct {
	taken   float64 // cumulative cost
	seen    time.Duration
	network float64 // recent minimum of the round trip without the worker's share, seconds
}

const (
	poolStart  = 4
	poolWeight = 0.5
	poolRate   = 0.3
	// If no batch is completed for poolPause times the mean gap between two completions, the worker
	// has paused. With exponential service, one gap in 22,000 is that long by chance.
	poolPause  = 10
	poolMean   = 0.02
	poolActive = 5 * time.Second
	poolExpiry = 10 * time.Minute // a sender that is silent for this long starts over
	poolLow    = 0.55             // low bound of the waiting batches, without the network's part
	poolHigh   = 1.15             // high bound, without the network's part
	// The low bound of the waiting batches is poolLow, plus rootLow times the square root of the
	// number of batches in the network.
	rootLow  = 1.2
	rootHigh = 2.35 // the same part of the high bound
	// maxPoolSenders is the maximum number of senders. A further sender replaces the one that was
	// silent for longest.
	maxPoolSenders = 1024
)

// Done notes that a batch of the given cost was served for a sender, and returns the
// advertisement for that sender. The parameter waiting is the cost in the worker's queue. The
// parameter network is the round trip that the sender measured, minus the time at the worker. It is
// 0 if unknown.
func (p *Pool) Done(now time.Duration, sender uint64, cost, waiting float64,
	network time.Duration) Advert {
	if p.senders == nil {
		p.senders = make(map[uint64]*poolSender)
		p.size, p.mean, p.began = poolStart, cost, now
	}
	p.sweep(now)
	s := p.senders[sender]
	if s == nil {
		s = &poolSender{}
		p.evict()
		p.senders[sender] = s
	}
	s.taken += cost
	s.seen = now
	p.mean += poolMean * (cost - p.mean)
	s.measured(network.Seconds())
	p.complete(now, waiting/p.mean)
	share := max(1, p.size/float64(p.active(now))) * p.mean
	return Advert{Valid: true, Credit: uint64(math.Ceil(s.taken + share - 1e-6)),
		Taken: uint64(s.taken), QueueLen: int(waiting)}
}

// measured notes a sender's measurement of the network's round trip, in seconds. A shorter one
// replaces the earlier ones at once, because the earlier ones may include the time to connect.
func (s *poolSender) measured(network float64) {
	switch {
	case network <= 0:
	case s.network == 0 || network < s.network:
		s.network = network
	default:
		s.network += poolMean * (network - s.network)
	}
}

// complete adds a served batch to the current round, the series of batches over which the mean
// queue is measured. It leaves out the batches that were in the queue during a pause of the worker,
// for example for its garbage collector. During the pause the queue fills up, although the senders
// do not send too much, so these batches would make the mean too long. If the worker pauses again
// before a round has ended, the pauses count as its normal speed, and no batch is left out.
func (p *Pool) complete(now time.Duration, waiting float64) {
	gap := now - p.last
	p.last = now
	if p.steady && waiting >= 1 && gap.Seconds()*p.rate > poolPause {
		p.steady, p.skip = false, int(math.Ceil(waiting))
		p.n, p.sum, p.began = 0, 0, now
		return
	}
	if p.skip > 0 {
		p.skip--
		p.began = now
		return
	}
	p.round(now, waiting)
}

// round compares the waiting batches with the bounds at the end of a round.
func (p *Pool) round(now time.Duration, waiting float64) {
	p.n++
	p.sum += waiting
	if float64(p.n) < min(max(p.size, 4), 64) {
		return
	}
	if span := (now - p.began).Seconds(); span > 0 {
		rate := float64(p.n) / span
		if p.rate == 0 {
			p.rate = rate
		}
		p.rate += poolRate * (rate - p.rate)
	}
	p.waiting += poolWeight * (p.sum/float64(p.n) - p.waiting)
	p.n, p.sum, p.began, p.steady = 0, 0, now, true
	root := 1.0 // if no sender reports its network
	if network := p.network(now); network > 0 {
		root = math.Sqrt(p.rate * network)
	}
	low, high := poolLow+rootLow*root, poolHigh+rootHigh*root
	switch {
	case p.waiting < low:
		p.size++
	case p.waiting > 2*high:
		p.size -= p.size / 5
	case p.waiting > high:
		p.size--
	}
	top := p.Max
	if top <= 0 {
		top = 1000
	}
	p.size = min(max(p.size, 1), top)
}

// network returns the mean round trip of the network in seconds, over the active senders that
// report one. It returns 0 if none does.
func (p *Pool) network(now time.Duration) float64 {
	sum, n := 0.0, 0.0
	for _, s := range p.senders {
		if s.network > 0 && now-s.seen < poolActive {
			sum, n = sum+s.network, n+1
		}
	}
	return sum / max(1, n)
}

// evict makes room for one more sender. If the table is full, it removes the sender that has been
// silent for longest. If that sender comes back, it counts as new.
func (p *Pool) evict() {
	if len(p.senders) < maxPoolSenders {
		return
	}
	var oldest uint64
	least := time.Duration(math.MaxInt64)
	for id, s := range p.senders {
		if s.seen < least || s.seen == least && id < oldest {
			oldest, least = id, s.seen
		}
	}
	delete(p.senders, oldest)
}

// active returns the number of senders seen in the last poolActive, at least one.
func (p *Pool) active(now time.Duration) int {
	n := 0
	for _, s := range p.senders {
		if now-s.seen < poolActive {
			n++
		}
	}
	return max(n, 1)
}

// sweep removes the senders that were silent for poolExpiry. It runs at most once per poolActive.
func (p *Pool) sweep(now time.Duration) {
	if now-p.swept < poolActive {
		return
	}
	p.swept = now
	for id, s := range p.senders {
		if now-s.seen > poolExpiry {
			delete(p.senders, id)
		}
	}
}
