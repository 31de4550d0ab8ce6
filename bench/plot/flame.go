package plot

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// Stack is a call stack with its share of the time. The outermost function is the first.
type Stack struct {
	Functions []string
	Value     float64
}

// node is a function that was called by the functions above it.
type node struct {
	name  string
	value float64
	below map[string]*node
}

const flameWidth, flameRow, flameLetter = 1240.0, 17.0, 6.3

// Flame draws stacks as a flame graph with the outermost functions at the top. The width of a box
// is the share of the time that was spent in the function, including the functions that it calls.
func Flame(title, subtitle string, stacks []Stack) string {
	root := &node{name: "all", below: map[string]*node{}}
	deepest := 0
	for _, s := range stacks {
		root.value += s.Value
		deepest = max(deepest, len(s.Functions))
		at := root
		for _, name := range s.Functions {
			next := at.below[name]
			if next == nil {
				next = &node{name: name, below: map[string]*node{}}
				at.below[name] = next
			}
			next.value += s.Value
			at = next
		}
	}
	p := newPage(flameWidth+2*margin, 80+flameRow*float64(deepest+1), title, subtitle)
	root.draw(p, margin, 64, flameWidth, root.value)
	return p.end()
}

// draw draws the box of the function with its upper left corner at x, y. The boxes of the functions
// that it calls are below, with the widest first.
func (n *node) draw(p *page, x, y, width, total float64) {
	if width < 0.4 {
		return
	}
	p.WriteString("<g>")
	fmt.Fprintf(p, "<title>%s: %.1f %%</title>\n", escape(n.name), 100*n.value/total)
	p.box(x, y, max(width-0.5, 0.4), flameRow-1, warm(n.name), 1)
	if letters := int((width - 6) / flameLetter); letters >= 3 {
		text := bare(n.name)
		if len(text) > letters {
			text = text[:letters-1] + "…"
		}
		p.text(x+3, y+12, text, look{size: 11, color: ink})
	}
	p.WriteString("</g>\n")
	below := slices.SortedFunc(maps.Values(n.below), func(a, b *node) int {
		if a.value != b.value {
			return int(max(-1, min(1, (b.value-a.value)*1e9)))
		}
		return strings.Compare(a.name, b.name)
	})
	for _, b := range below {
		w := width * b.value / n.value
		b.draw(p, x, y+flameRow, w, total)
		x += w
	}
}

// bare returns the name of a function without the path of its package.
func bare(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// warm returns a color between yellow and red for a function. Functions of the same package have
// the same color.
func warm(name string) string {
	pkg, _, _ := strings.Cut(bare(name), ".")
	h := fnv.New32a()
	h.Write([]byte(pkg))
	n := h.Sum32()
	return fmt.Sprintf("#%02x%02x%02x", 225+n%28, 140+n>>8%80, 70+n>>16%60)
}
