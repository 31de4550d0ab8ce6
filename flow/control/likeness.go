//penstock:pure

package control

import "math"

// likeness is how much the round trips of the lanes go up and down together: in one queue they do,
// but a common change of load makes that too. It costs nothing, and an experiment is made only
// where it says something else than what is.
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
	alikeLeast   = 0.5  // correlation in a block: that of 256 samples of lanes on their own stays within 0.3
	alikeNot     = 0.25
	alikeBlocks  = 2 // in a row
)

// alike takes in a round trip of a lane, and says whether it seems that the lanes share what is
// behind them.
func (m *Machine) alike(l *lane, rtt float64) bool {
	k := &m.group.likeness
	if l.level == 0 {
		l.level = rtt
	}
	d := rtt/l.level - 1
	l.level += alikeWeight * (rtt - l.level)
	if l.at >= 0 && len(m.up) > 1 {
		other := (k.deviations - l.deviation) / float64(len(m.up)-1)
		k.n++
		k.with += d * other
		k.own += d * d
		k.other += other * other
	}
	k.deviations += d - l.deviation
	l.deviation = d
	if k.n >= alikeSamples {
		m.likened()
	}
	return k.alike
}

// likened ends a block.
func (m *Machine) likened() {
	k := &m.group.likeness
	r := 0.0
	if p := k.own * k.other; p > 0 {
		r = k.with / math.Sqrt(p)
	}
	if alike := r >= alikeLeast; alike == k.alike || !alike && r > alikeNot {
		k.blocks = 0
	} else if k.blocks++; k.blocks >= alikeBlocks {
		k.alike, k.blocks = alike, 0
	}
	k.n, k.with, k.own, k.other, k.deviations = 0, 0, 0, 0, 0
	for _, l := range m.up { // lanes come and go, and sums of floats are not exact
		k.deviations += l.deviation
	}
}
