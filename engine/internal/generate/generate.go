//penstock:pure

// Package generate makes log lines for trials: as a busy web shop would write them, and the same
// ones for the same seed on every machine.
//
// A [Generator] draws one request after the other and appends it in one of the [Formats]. It
// computes with integers only, reads no clock (the lines' own time starts at a fixed instant) and
// writes nothing anywhere: its owner does.
package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Formats are the names that New takes: Apache's combined and common log formats, and nested JSON,
// one object a line.
var Formats = []string{"combined", "common", "json"}

// Generator makes lines. It is not safe for concurrent use.
type Generator struct {
	appendLine func(g *Generator, dst []byte, v *visit) []byte
	random     *rand.PCG
	now        int64 // microseconds since start
	second     int64 // of which stamp is the text
	stamp      []byte
	hosts      picks
	pages      picks
	agents     picks
	visitors   []visitor
	visit      visit
}

// New returns a generator of lines in a format of Formats; the same seed gives the same lines.
func New(format string, seed uint64) (*Generator, error) {
	g := &Generator{
		random: rand.NewPCG(seed, stream), second: -1,
		hosts: zipf(visitorsKnown), pages: zipf(len(pages)), agents: zipf(len(agents)),
	}
	switch format {
	case "combined":
		g.appendLine = (*Generator).combined
	case "common":
		g.appendLine = (*Generator).common
	case "json":
		g.appendLine = (*Generator).json
	default:
		return nil, fmt.Errorf("there is no format %q; the formats are %s", format,
			strings.Join(Formats, ", "))
	}
	g.visitors = make([]visitor, visitorsKnown)
	for i := range g.visitors {
		g.visitors[i] = g.newVisitor()
	}
	return g, nil
}

// stream tells this use of the PCG from others with the same seed.
const stream = 0x70656e73746f636b // "penstock"

// Append adds one line, with its line end, to dst.
func (g *Generator) Append(dst []byte) []byte {
	g.draw()
	return append(g.appendLine(g, dst, &g.visit), '\n')
}

// Lines adds n lines, but stops early when dst has reached most bytes, and returns the number of
// added lines.
func (g *Generator) Lines(dst []byte, n int64, most int) ([]byte, int64) {
	for i := range n {
		if len(dst) >= most {
			return dst, i
		}
		dst = g.Append(dst)
	}
	return dst, n
}

// picks draws an index with unequal odds: one table look-up for 12 random bits.
type picks [1 << picksBits]uint16

const picksBits = 12

// zipf gives index i of n odds in proportion to 1/(i+1), each at least one entry.
func zipf(n int) (p picks) {
	sum := 0
	for i := range n {
		sum += 1 << 20 / (i + 1)
	}
	at, left := 0, len(p)-n
	for i := range n {
		share := 1 + (1<<20/(i+1))*left/sum
		for ; share > 0 && at < len(p); share-- {
			p[at] = uint16(i)
			at++
		}
	}
	for ; at < len(p); at++ { // the rounding remainder goes to the first ones
		p[at] = 0
	}
	return p
}

func (p *picks) draw(bits uint64) int { return int(p[bits&(1<<picksBits-1)]) }
