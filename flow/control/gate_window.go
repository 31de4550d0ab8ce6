//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// windowGate is the window of a lane. It counts the attempts in flight that are not overdue.
type windowGate struct {
	fixed
	window.Window
	drain   drain
	leased  window.Leased  // nil if its limit is no promise with an end
	starter window.Starter // nil if it has no start-up
	byCost  bool
	est     *estimator // of the lane
	said    said

	load load
	all  *load // of all lanes
}

// load is a number of attempts and the sum of their costs.
type load struct {
	n    int
	cost float64
}

func (d *load) add(cost float64) {
	d.n++
	d.cost += cost
}

func (d *load) remove(cost float64) {
	d.cost -= cost
	if d.n--; d.n == 0 {
		d.cost = 0 // a sum of floats
	}
}

// said is the state of a window, kept until the window is told something again: a delivery has no
// time to ask for it again and again.
type said struct {
	limit    float64       // at least 1
	base     time.Duration // 0: it does not measure, or does not know yet
	epoch    uint32
	starting bool
	ends     time.Duration // of the promise that the limit is; 0: it is none
}

func newWindowGate(w window.Window, e *estimator, all *load) windowGate {
	g := windowGate{Window: w, byCost: !w.Batches(), est: e, all: all}
	g.drain.prober, _ = w.(window.Prober)
	g.leased, _ = w.(window.Leased)
	g.starter, _ = w.(window.Starter)
	g.hear()
	return g
}

// hear takes over the state of the window. It follows whatever the window is told.
func (g *windowGate) hear() {
	s := &g.said
	s.limit, s.epoch = max(1, g.Limit()), g.Epoch()
	if g.drain.prober != nil {
		s.base = g.drain.prober.Base()
	}
	if g.starter != nil {
		s.starting = g.starter.Starting()
	}
	if g.leased != nil {
		s.ends = g.leased.LeaseEnds()
	}
}

// discard has the window forget the rounds under way.
func (g *windowGate) discard(now time.Duration) {
	if d, ok := g.Window.(window.Discarder); ok {
		d.Discard(now)
		g.hear()
	}
}

func (g *windowGate) name() string {
	if g.leased != nil {
		return g.leased.Binding()
	}
	return gateWindow
}

// room returns how many items of mean cost the window still takes; one is always allowed.
func (g *windowGate) room(now time.Duration) int {
	limit := g.said.limit
	switch {
	case g.said.ends > 0 && now >= g.said.ends:
		return max(0, 1-g.load.n)
	case !g.byCost || g.est.mean <= 0:
		return max(0, int(limit)-g.load.n)
	}
	left := max(0, int(limit-g.load.cost/g.est.mean+1e-6)) // sums of costs are not exact
	if g.load.n == 0 {
		return max(left, 1)
	}
	return left
}

// started gives a a place, unless it goes beside the window.
func (g *windowGate) started(_ time.Duration, a *attempt) (timed bool) {
	if !a.apart {
		a.placed = true
		g.load.add(a.cost)
		g.all.add(a.cost)
	}
	return false
}

// ended takes the place back, if a still has one: it was answered, is overdue, or takes long.
func (g *windowGate) ended(a *attempt) {
	if !a.placed {
		return
	}
	a.placed = false
	g.load.remove(a.cost)
	g.all.remove(a.cost)
}
