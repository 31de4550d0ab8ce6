//penstock:pure

// Package generate generates log lines of a busy web shop for trials. The same seed gives the same
// lines on every machine.
//
// A [Generator] draws random requests and appends them as lines of one of the [Formats]. It
// computes with integers only and reads no clock: the times in the lines start at a fixed instant.
// It does no I/O.
package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Formats lists the formats that New accepts: Apache's combined and common log formats, and nested
// JSON with one object per line.
var Formats = []string{"combined", "common", "json"}

// Generator generates lines. It is not safe for concurrent use.
type Generator struct {
	appendLine func(g *Generator, dst []byte, v *visit) []byte
	random     *rand.PCG
	now        int64 // microseconds since start
	second     int64 // the second that stamp contains as text
	stamp      []byte
	hosts      picks
	pages      picks
	agents     picks
	visitors   []visitor
	visit      visit
}

// New returns a generator of lines in one of the Formats. The same seed gives the same lines.
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

// stream selects a PCG sequence that differs from those of other users of the same seed.
const stream = 0x70656e73746f636b // "penstock"

// Append adds one line, with its line end, to dst.
func (g *Generator) Append(dst []byte) []byte {
	g.draw()
	return append(g.appendLine(g, dst, &g.visit), '\n')
}

// Lines appends up to n lines, and returns the number of appended lines. It stops early when dst
// has at least most bytes.
func (g *Generator) Lines(dst []byte, n int64, most int) ([]byte, int64) {
	for i := range n {
		if len(dst) >= most {
			return dst, i
		}
		dst = g.Append(dst)
	}
	return dst, n
}

// picks is a table for drawing an index with unequal probabilities. Drawing takes one lookup with
// 12 random bits.
type picks [1 << picksBits]uint16

const picksBits = 12

// zipf returns picks in which index i of n has a probability proportional to 1/(i+1). Each index
// has at least one entry.
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
	for ; at < len(p); at++ { // the rounding remainder goes to the first indexes
		p[at] = 0
	}
	return p
}

func (p *picks) draw(bits uint64) int { return int(p[bits&(1<<picksBits-1)]) }
