//penstock:pure

package control

import "math"

// likeness measures the correlation of the round trips of the lanes. Lanes that share a queue have
// a high correlation, but a common change of load also causes one. Since the correlation costs
// nothing, an experiment is made only if the correlation contradicts the present state.
type likeness struct {
	deviations float64 // sum of the lanes' deviations
	n          int     // samples of the block
	with       float64 // sum of products of a lane's deviation with the mean of the others
	own, other float64 // sums of squares of a lane's deviation, and of the mean of the others
	blocks     int     // consecutive blocks that contradict alike
	alike      bool    // the lanes seem to share a bottleneck
}

const (
	alikeSamples = 256  // samples of a block
	alikeWeight  = 0.02 // weight of the newest sample in a lane's mean round trip
	// Correlations in a block from which the lanes seem to share a bottleneck, and up to which they
	// do not. With 256 samples, the correlation of independent lanes stays within 0.3.
	alikeLeast  = 0.5
	alikeNot    = 0.25
	alikeBlocks = 2 // consecutive blocks that change alike
)

// groupPart is a lane's state for the search for a shared bottleneck.
type groupPart struct {
	paused    bool           // paused by an experiment
	seen      [2]observation // while all lanes were active, and while half of them were
	level     float64        // mean round trip, seconds
	deviation float64        // relative difference of the last round trip from level
}

// deviate records a round trip, and returns its relative difference from the mean.
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

// likened ends a block and updates alike.
func (g *group) likened() {
	k := &g.likeness
	r := k.correlation()
	if alike := r >= alikeLeast; alike == k.alike || !alike && r > alikeNot {
		k.blocks = 0
	} else if k.blocks++; k.blocks >= alikeBlocks {
		k.alike, k.blocks = alike, 0
	}
	k.n, k.with, k.own, k.other, k.deviations = 0, 0, 0, 0, 0
	// Compute the sum again: lanes come and go, and the running sum has rounding errors.
	for _, l := range g.lanes.up {
		k.deviations += l.part.deviation
	}
}

// correlation returns the correlation of the lanes' round trips in the block.
func (k *likeness) correlation() float64 {
	if p := k.own * k.other; p > 0 {
		return k.with / math.Sqrt(p)
	}
	return 0
}
