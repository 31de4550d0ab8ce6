//penstock:pure

// Package generate makes random log lines of a busy web shop, as test data. The same seed gives the
// same lines on every machine.
//
// A [Generator] draws requests and appends them as lines in one of the [Formats]. It computes with
// integers only. It reads no clock: the times in the lines begin at a fixed time. It does no I/O.
package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Formats are the formats that New accepts: "combined" and "common" are log formats of Apache, and
// "json" has a nested JSON object on each line.
var Formats = []string{"combined", "common", "json"}

// Generator generates lines. It is not safe for concurrent use.
type Generator struct {
	appendLine func(g *Generator, dst []byte, v *visit) []byte
	random     *rand.PCG
	now        int64 // microseconds since start
	second     int64 // the second for which stamp was computed
	stamp      []byte
	hosts      picks
	pages      picks
	agents     picks
	visitors   []visitor
	visit      visit
}

// New returns a generator of lines in one of the Formats. Equal seeds give equal lines.
func New(format string, seed uint64) (*Generator, error) {
	g := &Generator{
		random: rand.NewPCG(seed, stream), second: -1,
		hosts: zipf(visitorCount), pages: zipf(len(pages)), agents: zipf(len(agents)),
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
	g.visitors = make([]visitor, visitorCount)
	for i := range g.visitors {
		g.visitors[i] = g.newVisitor()
	}
	return g, nil
}

// stream is the second half of the seed of PCG.
const stream = 0x70656e73746f636b // "penstock"

// Append appends one line, including its line end, to dst.
func (g *Generator) Append(dst []byte) []byte {
	g.draw()
	return append(g.appendLine(g, dst, &g.visit), '\n')
}

// Lines appends up to n lines to dst, and returns dst and the number of lines. It stops early when
// the length of dst reaches most.
func (g *Generator) Lines(dst []byte, n int64, most int) ([]byte, int64) {
	for i := range n {
		if len(dst) >= most {
			return dst, i
		}
		dst = g.Append(dst)
	}
	return dst, n
}

// picks is a table from which indexes are drawn with unequal probabilities. A draw selects an entry
// of the table by 12 random bits. An index with a high probability is in many entries.
type picks [1 << picksBits]uint16

const picksBits = 12

// zipf returns a table in which the probability of index i of n is about proportional to 1/(i+1).
// Each index has at least one entry.
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
	for ; at < len(p); at++ { // the rest from rounding goes to index 0
		p[at] = 0
	}
	return p
}

func (p *picks) draw(bits uint64) int { return int(p[bits&(1<<picksBits-1)]) }
