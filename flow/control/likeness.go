//penstock:pure

package control

import "math"

// likeness is the correlation of the round trips of the lanes. Lanes that share a queue have a high
// one, but a common change of load causes it too. It costs nothing, and an experiment is made only
// if it contradicts the present state.
type likeness struct {
	deviations float64 // sum of lane.deviation
	n          int     // samples of the block
	with       float64 // sum of products of a lane's deviation with the mean of the others'
	own, other float64 // sums of squares
	blocks     int     // in a row that
	alike      bool    // say so
}

const (
	alikeSamples = 256  // of a block
	alikeWeight  = 0.02 // of the newest in a lane's mean round trip
	// correlation in a block: that of 256 samples of independent lanes stays within 0.3
	alikeLeast  = 0.5
	alikeNot    = 0.25
	alikeBlocks = 2 // in a row
)

// groupPart is a lane's state for the search for a shared bottleneck.
type groupPart struct {
	paused    bool           // half of the lanes are, in an experiment
	seen      [2]observation // before it and in it
	level     float64        // mean round trip, seconds
	deviation float64        // relative difference of the last one from it
}

// deviate takes in a round trip, and returns its relative difference from their mean.
func (p *groupPart) deviate(rtt float64) (d float64) {
	if p.level == 0 {
		p.level = rtt
	}
	d = rtt/p.level - 1
	p.level += alikeWeight * (rtt - p.level)
	return d
}

// alike records a round trip of a lane, and reports whether the lanes seem to share a bottleneck.
func (g *group) alike(l *lane, rtt float64) bool {
	k := &g.likeness
	d := l.part.deviate(rtt)
	if l.at >= 0 && len(g.lanes.up) > 1 {
		other := (k.deviations - l.part.deviation) / float64(len(g.lanes.up)-1)
		k.n++
		k.with += d * other
		k.own += d * d
		k.other += other * other
	}
	k.deviations += d - l.part.deviation
	l.part.deviation = d
	if k.n >= alikeSamples {
		g.likened()
	}
	return k.alike
}

// likened ends a block.
func (g *group) likened() {
	k := &g.likeness
	r := k.correlation()
	if alike := r >= alikeLeast; alike == k.alike || !alike && r > alikeNot {
		k.blocks = 0
	} else if k.blocks++; k.blocks >= alikeBlocks {
		k.alike, k.blocks = alike, 0
	}
	k.n, k.with, k.own, k.other, k.deviations = 0, 0, 0, 0, 0
	for _, l := range g.lanes.up { // lanes come and go, and sums of floats are not exact
		k.deviations += l.part.deviation
	}
}

// correlation returns that of the lanes' round trips in the block.
func (k *likeness) correlation() float64 {
	if p := k.own * k.other; p > 0 {
		return k.with / math.Sqrt(p)
	}
	return 0
}
