//penstock:pure

package window

import (
	"math"
	"time"
)

// Pool is the worker's side of [Credit]: how much a worker lets its senders have in flight,
// together and each. It is to keep a little waiting at the worker, enough that it hardly idles
// while answers and new batches cross the network and no more: every round of completions the mean
// of what waited is held against two marks, and the pool grows or shrinks by a batch, far above by
// a fifth. Half-way between the marks a server with exponential times is busy for 99 % of the time,
// by mean value analysis of the closed loop: about 0.9 batches wait where the network holds next to
// none, 2.6 where it holds one, 5.6 where it holds seven. Each sender seen in the last 5 s has an
// even share. It is pure, and not safe for concurrent use. The zero value works.
type Pool struct {
	Max float64 // batches that all senders together may have in flight; 0 means 1000

	size    float64 // batches
	n       int
	sum     float64 // of what waited at each completion of the round, in batches
	began   time.Duration
	last    time.Duration // completion
	steady  bool          // a round has ended since the last pause
	skip    int           // completions still to come of what waited through it
	waiting float64       // EWMA of the rounds' means
	mean    float64       // cost of a batch
	rate    float64       // completions a second
	network float64       // round trip of the network, seconds
	senders map[uint64]*poolSender
	swept   time.Duration
}

type poolSender struct {
	taken float64 // cumulative cost
	seen  time.Duration
}

const (
	poolStart  = 4
	poolWeight = 0.5
	poolRate   = 0.3
	poolPause  = 10 // times as long without a completion as between two is a pause: exponential service has one in 22,000
	poolMean   = 0.02
	poolSeen   = 5 * time.Second
	poolForget = 10 * time.Minute // a sender that is not heard of for so long starts anew
	poolLow    = 0.55             // batches are to wait at least,
	poolHigh   = 1.15             // and so many at most,
	rootLow    = 1.2              // and so many times sqrt(what the network holds) more at least,
	rootHigh   = 2.35             // and so many at most
	poolMost   = 4096             // senders that are told apart; further ones get the least
)

// Done takes in that a batch of this cost was served for a sender, with so much cost still waiting,
// and returns what to tell that sender. network is the sender's own measure of its round trip
// without the worker's share; 0: it does not say.
func (p *Pool) Done(now time.Duration, sender uint64, cost, waiting float64, network time.Duration) Advert {
	if p.senders == nil {
		p.senders = make(map[uint64]*poolSender)
		p.size, p.mean, p.began = poolStart, cost, now
	}
	p.sweep(now)
	s := p.senders[sender]
	if s == nil {
		s = &poolSender{}
		if len(p.senders) < poolMost {
			p.senders[sender] = s
		}
	}
	s.taken += cost
	s.seen = now
	p.mean += poolMean * (cost - p.mean)
	if network > 0 {
		if p.network == 0 {
			p.network = network.Seconds()
		}
		p.network += poolMean * (network.Seconds() - p.network)
	}
	p.complete(now, waiting/p.mean)
	share := max(1, p.size/float64(p.active(now))) * p.mean
	return Advert{Valid: true, Credit: uint64(math.Ceil(s.taken + share - 1e-6)), Taken: uint64(s.taken), QueueLen: int(waiting)}
}

// complete takes a completion into the round. What waited through a pause, of the worker's garbage
// collector for one, says nothing of the pool: it waited for the worker to go on, and before the
// answers to it have crossed the network the queue is longer than it would be. Of two pauses
// without a round between them the second is how the worker is now.
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

// round holds what waited against what is to wait, when the round is over.
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
	root := 1.0 // where nobody says what the network is
	if p.network > 0 {
		root = math.Sqrt(p.rate * p.network)
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

// active senders, at least one.
func (p *Pool) active(now time.Duration) int {
	n := 0
	for _, s := range p.senders {
		if now-s.seen < poolSeen {
			n++
		}
	}
	return max(n, 1)
}

// sweep forgets senders that were not heard of for long.
func (p *Pool) sweep(now time.Duration) {
	if now-p.swept < poolSeen {
		return
	}
	p.swept = now
	for id, s := range p.senders {
		if now-s.seen > poolForget {
			delete(p.senders, id)
		}
	}
}
