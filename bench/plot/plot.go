// Package plot draws the figures of docs/performance.md as SVG: bars of shares, curves of growth,
// and flame graphs. They look like the plots of engine/internal/lab/plot, which another module
// cannot import. Equal data gives equal bytes.
package plot

import (
	"fmt"
	"math"
	"strings"
)

// Colors that color-blind readers can distinguish, from the palette of Okabe and Ito, and a gray.
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"}

const (
	ink    = "#222b35"
	faint  = "#66707c"
	grid   = "#e3e7ec"
	frame  = "#b4bcc6"
	margin = 18.0
)

// page is an SVG text. Lengths are in pixels, and y grows downwards.
type page struct{ strings.Builder }

func newPage(width, height float64, title, subtitle string) *page {
	p := new(page)
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" `+
		`width="%[1]s" height="%[2]s" `+
		`font-family="Helvetica, Arial, sans-serif" role="img">`+"\n", number(width),
		number(height))
	fmt.Fprintf(p, "<title>%s</title>\n", escape(title))
	p.box(0, 0, width, height, "#ffffff", 1)
	p.text(margin, 30, title, look{size: 19, color: ink, bold: true})
	p.text(margin, 50, subtitle, look{size: 13, color: faint})
	return p
}

func (p *page) end() string { p.WriteString("</svg>\n"); return p.String() }

func (p *page) box(x, y, w, h float64, color string, opacity float64) {
	fmt.Fprintf(p, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s" fill-opacity="%s"/>`+"\n",
		number(x), number(y), number(w), number(h), color, number(opacity))
}

func (p *page) line(color string, width float64, points ...[2]float64) {
	var all []string
	for _, at := range points {
		all = append(all, number(at[0])+","+number(at[1]))
	}
	fmt.Fprintf(p, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%s" `+
		`stroke-linejoin="round"/>`+"\n",
		strings.Join(all, " "), color, number(width))
}

func (p *page) dot(x, y float64, color string) {
	fmt.Fprintf(p, `<circle cx="%s" cy="%s" r="2.6" fill="%s"/>`+"\n", number(x), number(y), color)
}

type look struct {
	size   float64
	color  string
	anchor string // "", middle, end
	bold   bool
	turned bool
}

func (p *page) text(x, y float64, text string, l look) {
	extra := ""
	if l.anchor != "" {
		extra = fmt.Sprintf(` text-anchor="%s"`, l.anchor)
	}
	if l.bold {
		extra += ` font-weight="600"`
	}
	if l.turned {
		extra += fmt.Sprintf(` transform="rotate(-90 %s %s)"`, number(x), number(y))
	}
	fmt.Fprintf(p, `<text x="%s" y="%s" font-size="%s" fill="%s"%s>%s</text>`+"\n",
		number(x), number(y), number(l.size), l.color, extra, escape(text))
}

func number(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", x), "0"), ".")
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace

// Bar is the bar of one program in one workload.
type Bar struct {
	Name  string
	Value float64
	Text  string // beside it; "" writes the value
	Ours  bool
	Pale  bool // measured on another machine
}

// Group has the bars of one workload, below its title.
type Group struct {
	Title    string
	Subtitle string // "": none
	Bars     []Bar
}

const (
	barWidth, barStep  = 360.0, 21.0
	barLeft, barRight  = 84.0, 150.0
	groupHead, barFoot = 48.0, 22.0
)

// Bars draws groups of bars in two columns. Each group has its own scale, from 0 to its largest
// value.
func Bars(title, subtitle string, groups []Group) string {
	column := barLeft + barWidth + barRight
	heights, at := [2]float64{70, 70}, make([][2]float64, len(groups))
	for i, g := range groups {
		side := 0
		if heights[1] < heights[0] {
			side = 1
		}
		at[i] = [2]float64{margin + float64(side)*column, heights[side]}
		heights[side] += groupHead + barStep*float64(len(g.Bars)) + barFoot
	}
	p := newPage(2*margin+2*column, max(heights[0], heights[1])+margin, title, subtitle)
	for i, g := range groups {
		g.draw(p, at[i][0], at[i][1])
	}
	return p.end()
}

func (g Group) draw(p *page, x, y float64) {
	p.text(x, y+16, g.Title, look{size: 14, color: ink, bold: true})
	p.text(x, y+34, g.Subtitle, look{size: 12, color: faint})
	largest := 0.0
	for _, b := range g.Bars {
		largest = max(largest, b.Value)
	}
	for i, b := range g.Bars {
		top := y + groupHead + float64(i)*barStep
		p.text(x+barLeft-8, top+12, b.Name, look{size: 12, color: ink, anchor: "end", bold: b.Ours})
		color, opacity := palette[6], .7
		if b.Ours {
			color, opacity = palette[0], .9
		}
		if b.Pale {
			opacity = .3
		}
		width := max(1, b.Value/largest*barWidth)
		p.box(x+barLeft, top, width, 15, color, opacity)
		text := b.Text
		if text == "" {
			text = fmt.Sprintf("%.3g", b.Value)
		}
		p.text(x+barLeft+width+6, top+12, text, look{size: 12, color: ink})
	}
	p.line(frame, 1.2, [2]float64{x + barLeft, y + groupHead - 4},
		[2]float64{x + barLeft, y + groupHead + barStep*float64(len(g.Bars))})
}

// Curve is a set of points in a panel with two logarithmic axes.
type Curve struct {
	Title, X, Y string
	Points      [][2]float64 // all values are above 0
}

const curveWidth, curveHeight = 470.0, 300.0

// Curves draws each curve in its own panel. A row has two panels.
func Curves(title, subtitle string, curves []Curve) string {
	rows := (len(curves) + 1) / 2
	p := newPage(2*margin+2*curveWidth, 70+float64(rows)*curveHeight+margin, title, subtitle)
	for i, c := range curves {
		c.draw(p, margin+float64(i%2)*curveWidth, 64+float64(i/2)*curveHeight)
	}
	return p.end()
}

func (c Curve) draw(p *page, x, y float64) {
	p.text(x, y+18, c.Title, look{size: 14, color: ink, bold: true})
	left, top, w, h := x+66, y+36, curveWidth-90, curveHeight-92
	xs, ys := newDecades(c.Points, 0), newDecades(c.Points, 1)
	for _, v := range ys.ticks() {
		at := top + h*(1-ys.place(v))
		p.line(grid, 1, [2]float64{left, at}, [2]float64{left + w, at})
		p.text(left-8, at+4, short(v), look{size: 12, color: faint, anchor: "end"})
	}
	for _, v := range xs.ticks() {
		at := left + w*xs.place(v)
		p.line(frame, 1, [2]float64{at, top + h}, [2]float64{at, top + h + 4})
		p.text(at, top+h+18, short(v), look{size: 12, color: faint, anchor: "middle"})
	}
	p.line(frame, 1.2, [2]float64{left, top + h}, [2]float64{left + w, top + h})
	p.text(left+w/2, top+h+38, c.X, look{size: 12.5, color: ink, anchor: "middle"})
	p.text(left-52, top+h/2, c.Y, look{size: 12.5, color: ink, anchor: "middle", turned: true})
	var points [][2]float64
	for _, v := range c.Points {
		points = append(points, [2]float64{left + w*xs.place(v[0]), top + h*(1-ys.place(v[1]))})
	}
	p.line(palette[0], 2.2, points...)
	for _, at := range points {
		p.dot(at[0], at[1], palette[0])
	}
}

// decades is a logarithmic axis. It begins and ends at a power of ten.
type decades struct{ low, high float64 }

func newDecades(points [][2]float64, axis int) decades {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range points {
		low, high = min(low, math.Log10(v[axis])), max(high, math.Log10(v[axis]))
	}
	d := decades{math.Floor(low + 1e-9), math.Ceil(high - 1e-9)}
	if d.high <= d.low {
		d.high = d.low + 1
	}
	return d
}

func (d decades) place(v float64) float64 { return (math.Log10(v) - d.low) / (d.high - d.low) }

// ticks returns the ticks of the axis. If the axis has one or two decades, they are at 1, 2 and 5
// times each power of ten. If it has three to six decades, they are at each power of ten. If it has
// more, they are at every nth power, with the smallest n that gives at most 6 steps.
func (d decades) ticks() (all []float64) {
	if d.high-d.low <= 2 {
		for e := d.low; e < d.high; e++ {
			all = append(all, math.Pow(10, e), 2*math.Pow(10, e), 5*math.Pow(10, e))
		}
		return append(all, math.Pow(10, d.high))
	}
	step := math.Ceil((d.high - d.low) / 6)
	for e := d.low; e <= d.high; e += step {
		all = append(all, math.Pow(10, e))
	}
	return all
}

// short formats a number. From 1000 on, it uses a suffix: 10000000 becomes 10M.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return number(v/unit.size) + unit.name
		}
	}
	return fmt.Sprintf("%.3g", v)
}
