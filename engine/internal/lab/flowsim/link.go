//penstock:pure

package flowsim

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// link is a receiver with a delay that depends on its load. It models the receivers in the
// published tests of adaptive concurrency in Vector, another data shipper.
type link struct {
	cfg       scenario.Link
	rnd       *rand.Rand
	inFlight  int // number of batches that will get a response
	begun     fifo[time.Duration]
	successes int
	failed    int
}

func (x *sim) reachLink(a *attempt) {
	l := x.link
	for l.begun.len() > 0 && *l.begun.first() <= x.events.Now()-time.Second {
		l.begun.take()
	}
	l.begun.add(x.events.Now())
	l.inFlight++
	level, rate := l.inFlight, l.begun.len()
	d := l.cfg.Delay
	switch {
	case x.refusesBad(a, 0):
		if a.lost {
			l.inFlight--
		}
		return
	case l.cfg.Concurrency.Above(level):
		x.refuse(a, &l.cfg.Concurrency)
		return
	case l.cfg.Rate.Above(rate):
		x.refuse(a, &l.cfg.Rate)
		return
	case l.successes >= l.cfg.FailFirst.After && l.failed < l.cfg.FailFirst.Failures:
		l.failed++
		x.refuse(a, &scenario.Knee{})
		return
	}
	l.successes++
	share := 1 + l.cfg.Concurrency.Growth(float64(level)) + l.cfg.Rate.Growth(float64(rate))
	if l.cfg.Jitter > 0 {
		share += l.cfg.Jitter * l.rnd.ExpFloat64()
	}
	d = time.Duration(float64(d) * share)
	it := &x.senders[a.sender].items[a.seq-1]
	if it.served {
		x.fig.duplicate(x.events.Now())
	} else {
		x.fig.work.spread(x.events.Now(), x.events.Now()+d, a.cost)
	}
	it.served = true
	x.reply(a, d, control.Delivered, 0)
}

// refuse refuses an attempt, in the way that k states.
func (x *sim) refuse(a *attempt, k *scenario.Knee) {
	if k.Action == "drop" {
		x.link.inFlight--
		a.lost = true
		return
	}
	x.reply(a, cmp.Or(k.After, x.link.cfg.Delay), control.Retryable, 0)
}
