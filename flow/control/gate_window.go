//penstock:pure

package control

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// maxRaise bounds the raised limit on attempts in flight at a worker that delivers nothing. The
// raised limit is one, plus one for each timeout that bad data explains, until the next delivery.
const maxRaise = 16

// windowGate is the gate of a lane's window. It counts the attempts that have a place in the
// window, which means that they count against its limit. Attempts of suspects have no place, and
// attempts that hang give up theirs.
type windowGate struct {
	window.Window
	probe   windowProbe
	leased  window.Leased  // nil if the limit is not a lease
	starter window.Starter // nil if the window has no start-up
	byCost  bool
	est     *estimator // of the lane
	cached  windowCache
	widen   float64 // attempts with a place per attempt that the worker holds; 0 is 1

	load    load
	all     *load // of all lanes
	running *load // attempts of the lane, with a place or without
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
		d.cost = 0 // remove the rounding errors of the sum
	}
}

// room returns the number of items for which a limit has room. An item counts as its cost divided
// by the parameter unit, or as one if unit is 0. One item in flight is always allowed.
func (d *load) room(limit, unit float64) int {
	if unit <= 0 {
		return max(0, int(limit)-d.n)
	}
	left := max(0, int(limit-d.cost/unit+1e-6)) // the sum of costs has rounding errors
	if d.n == 0 {
		return max(left, 1)
	}
	return left
}

// windowCache caches the state of a window between updates of the window, because calling the
// window several times per delivery would be slow.
type windowCache struct {
	limit    float64       // at least 1
	base     time.Duration // 0: not measured, or not known yet
	epoch    uint32
	starting bool
	ends     time.Duration // end of the lease; 0: the limit is not a lease
	granted  float64       // during the lease: total that the worker accepts
}

func newWindowGate(w window.Window, l *lane, all *load) windowGate {
	g := windowGate{Window: w, byCost: !w.Batches(), est: &l.est, all: all, running: &l.running}
	g.probe.prober, _ = w.(window.Prober)
	g.leased, _ = w.(window.Leased)
	g.starter, _ = w.(window.Starter)
	g.refresh()
	return g
}

// measures reports whether the limit follows from measured round trips. The round trip without a
// queue must be known, the start-up must be over, and the worker must not grant a limit of its own.
func (g *windowGate) measures() bool {
	return g.cached.base > 0 && !g.cached.starting && g.cached.ends == 0
}

// refresh updates the cached state. It must be called after each update of the window.
func (g *windowGate) refresh() {
	s := &g.cached
	s.limit, s.epoch = max(1, g.Limit()), g.Epoch()
	if g.probe.prober != nil {
		s.base = g.probe.prober.Base()
	}
	if g.starter != nil {
		s.starting = g.starter.Starting()
	}
	if g.leased != nil {
		s.ends, s.granted = g.leased.LeaseEnds(), g.leased.Granted()
	}
}

// discard makes the window discard its current round-trip samples, if it can.
func (g *windowGate) discard(now time.Duration) {
	if d, ok := g.Window.(window.Discarder); ok {
		d.Discard(now)
		g.refresh()
	}
}

func (g *windowGate) name() string {
	if g.leased != nil {
		return g.leased.Binding()
	}
	return gateWindow
}

// room returns the number of items of mean cost for which the window has room. One item with a place
// is always allowed. The total that the worker has granted covers attempts without a place, too: the
// worker still holds them. Otherwise a slow worker would get more after each timeout.
func (g *windowGate) room(now time.Duration) int {
	limit := g.places()
	if g.est.raise > 0 && g.starter != nil {
		limit = max(limit, float64(min(1+g.est.raise, maxRaise)))
	}
	unit := 0.0
	if g.byCost {
		unit = g.est.mean
	}
	room := g.load.room(limit, unit)
	if g.cached.ends > 0 {
		granted := g.running.room(g.cached.granted, unit)
		if now >= g.cached.ends {
			granted = 0
		}
		room = min(room, max(granted, 1-g.load.n, 0))
	}
	return room
}

// places returns the limit of the window with the places of attempts that hang.
func (g *windowGate) places() float64 {
	if w := g.widening(); w > 1 {
		return math.Round(g.cached.limit * w)
	}
	return g.cached.limit
}

// widening returns the number of places for each attempt that the worker holds, at least 1.
func (g *windowGate) widening() float64 {
	if g.probe.on {
		return max(1, g.probe.widen)
	}
	return max(1, g.widen)
}

// atWorker returns the number of attempts that the worker holds if n attempts have a place in the
// window. The others hang because of bad data, and are no load of the worker.
func (g *windowGate) atWorker(n int) int {
	widen := g.widening()
	if widen <= 1 {
		return n
	}
	held := max(1, int(float64(n-1)/widen))
	for placesFor(held, widen) < n {
		held++
	}
	return held
}

// placesFor returns the number of attempts that have a place in the window if the worker holds the
// given number (held). The parameter widen is the number of places for each attempt that the worker
// holds.
func placesFor(held int, widen float64) int { return int(math.Ceil(float64(held) * max(1, widen))) }

// started counts attempt a against the limit of the window (gives it a place), unless its item is a
// suspect.
func (g *windowGate) started(_ time.Duration, a *attempt) (timed bool) {
	if !a.ofSuspect {
		a.placed = true
		g.load.add(a.cost)
		g.all.add(a.cost)
	}
	return false
}

// ended frees the place of attempt a, if the attempt still has one. The attempt was answered, is
// overdue, or gives up its place (see [hanging]).
func (g *windowGate) ended(a *attempt) {
	if !a.placed {
		return
	}
	a.placed = false
	g.load.remove(a.cost)
	g.all.remove(a.cost)
}
