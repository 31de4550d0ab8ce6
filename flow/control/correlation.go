//penstock:pure

package control

import "math"

// correlation measures how closely the round trips of the lanes are correlated. Lanes that share a
// bottleneck have a high correlation, but a common change of load also causes one. Only an
// experiment, which pauses half of the lanes (see [group]), can tell these two apart. An experiment
// is made only if the correlation contradicts the present assumption: it is high although the lanes
// form no group, or low although they do.
type correlation struct {
	deviations float64 // sum of the lanes' deviations
	n          int     // samples of the block
	with       float64 // sum of products of a lane's deviation with the mean of the others
	own, other float64 // sums of squares of a lane's deviation, and of the mean of the others
	// number of consecutive blocks of samples that suggest that the field alike is wrong
	blocks int
	alike  bool // the lanes seem to share a bottleneck
}

const (
	correlationSamples = 256  // samples of a block
	correlationWeight  = 0.02 // weight of the newest sample in a lane's mean round trip
	// Thresholds of the correlation in a block of samples: from minShared on, the lanes seem to
	// share a bottleneck; up to maxIndependent, they do not. With 256 samples, the correlation of
	// independent lanes stays within 0.3.
	minShared         = 0.5
	maxIndependent    = 0.25
	correlationBlocks = 2 // consecutive blocks that change alike
)

// laneGroupState is a lane's state for the search for a shared bottleneck.
type laneGroupState struct {
	paused    bool           // paused by an experiment
	seen      [2]observation // while all lanes were active, and while half of them were
	level     float64        // mean round trip, seconds
	deviation float64        // relative difference of the last round trip from level
}

// deviate records a round trip, and returns its relative difference from the mean.
func (p *laneGroupState) deviate(rtt float64) (d float64) {
	if p.level == 0 {
		p.level = rtt
	}
	d = rtt/p.level - 1
	p.level += correlationWeight * (rtt - p.level)
	return d
}

// observeCorrelation records a round trip of a lane, and reports whether the lanes seem to share a
// bottleneck.
func (g *group) observeCorrelation(l *lane, rtt float64) bool {
	k := &g.correlation
	d := l.groupState.deviate(rtt)
	if l.at >= 0 && len(g.lanes.up) > 1 {
		other := (k.deviations - l.groupState.deviation) / float64(len(g.lanes.up)-1)
		k.n++
		k.with += d * other
		k.own += d * d
		k.other += other * other
	}
	k.deviations += d - l.groupState.deviation
	l.groupState.deviation = d
	if k.n >= correlationSamples {
		g.endBlock()
	}
	return k.alike
}

// endBlock ends a block of samples. The field alike reports whether the lanes seem to share a
// bottleneck. It is inverted if correlationBlocks consecutive blocks suggest the opposite.
func (g *group) endBlock() {
	k := &g.correlation
	r := k.value()
	if alike := r >= minShared; alike == k.alike || !alike && r > maxIndependent {
		k.blocks = 0
	} else if k.blocks++; k.blocks >= correlationBlocks {
		k.alike, k.blocks = alike, 0
	}
	k.n, k.with, k.own, k.other, k.deviations = 0, 0, 0, 0, 0
	// Compute the sum again: lanes come and go, and the running sum has rounding errors.
	for _, l := range g.lanes.up {
		k.deviations += l.groupState.deviation
	}
}

// value returns the correlation of the lanes' round trips in the block.
func (k *correlation) value() float64 {
	if p := k.own * k.other; p > 0 {
		return k.with / math.Sqrt(p)
	}
	return 0
}
