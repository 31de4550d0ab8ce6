//penstock:pure

package flow

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// pool is how much a simulated worker lets its senders have in flight, as research/flowcontrol 2.7 has it: every
// clamp(size, 4, 64) completions it looks at the mean of what waited at each; below lo it grows by one batch, above hi
// it shrinks by one, above twice hi by a fifth. Sizes are in batches of mean cost.
type pool struct {
	size    float64
	n       int
	sum     float64
	waiting float64   // EWMA of the rounds' means
	done    []float64 // cost completed, by sender
	seen    []time.Duration
}

const (
	poolStart  = 4
	poolLeast  = 1
	poolWeight = 0.5
	poolSeen   = 5 * time.Second // a sender counts for so long after its last batch
)

// report is what a worker says of itself with an answer; nothing, if the algorithm is for workers that say nothing.
func (x *sim) report(v *server, j *job) control.Report {
	if !x.spec.Reports {
		return control.Report{}
	}
	w := v
	if x.shared != nil {
		w = &x.servers[j.a.lane]
	}
	mean := x.s.Size.Mean()
	p := &w.pool
	if p.done == nil {
		p.size = poolStart
		p.done, p.seen = make([]float64, len(x.senders)), make([]time.Duration, len(x.senders))
		for i := range p.seen {
			p.seen[i] = -poolSeen
		}
	}
	p.seen[j.a.sender] = x.now
	p.done[j.a.sender] += j.a.cost
	p.completed(v.waits/mean, w.cfg.Rate/mean*(x.s.RTT+x.s.Jitter).Seconds())
	share := p.size * mean / float64(p.senders(x.now))
	if w.credit != nil {
		share = w.credit.Limit
	}
	return control.Report{
		Epoch: w.epoch + 1, Credit: uint64(p.done[j.a.sender] + share),
		QueueLen: int(v.waits), Slots: v.cfg.Slots, QueueWait: j.waited, Service: j.service,
	}
}

func (p *pool) completed(waiting, bdp float64) {
	p.n++
	p.sum += waiting
	if float64(p.n) < min(max(p.size, 4), 64) {
		return
	}
	p.waiting += poolWeight * (p.sum/float64(p.n) - p.waiting)
	p.n, p.sum = 0, 0
	low, high := max(1, 1.5*math.Sqrt(bdp)), max(3, 3*math.Sqrt(bdp))
	switch {
	case p.waiting < low:
		p.size++
	case p.waiting > 2*high:
		p.size -= p.size / 5
	case p.waiting > high:
		p.size--
	}
	p.size = max(p.size, poolLeast)
}

func (p *pool) senders(now time.Duration) int {
	n := 0
	for _, at := range p.seen {
		if now-at < poolSeen {
			n++
		}
	}
	return max(n, 1)
}
