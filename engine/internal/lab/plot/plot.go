//penstock:pure

// Package plot draws figures as SVG or PNG. A figure has one or more panels with lines, bands,
// points or bars over linear or logarithmic axes. Commands such as `penstock backoff --plot` use
// it, and so do some examples. Values have no units. The format functions of the axes add them.
package plot

import (
	"image/color"
	"math"
	"slices"
	"strconv"
)

// Figure is a page of panels, which are arranged in rows.
type Figure struct {
	Title    string
	Subtitle string
	Panels   []Panel
	Columns  int // panels in a row; 0 means all
}

// Panel is one diagram. It has either series or bars.
type Panel struct {
	Title  string
	X, Y   Axis
	Series []Series
	Spans  []Span // shaded behind the series
	Bars   []Bar  // horizontal bars, from top to bottom
}

// Span is a range of the horizontal axis, such as the time of an event. If its ends are equal, it
// is drawn as a line.
type Span struct {
	From, To float64
	Label    string
}

// Axis is one axis of a panel.
type Axis struct {
	Label  string
	Log    bool                 // logarithmic; values at or below 0 are drawn at the lower end
	Format func(float64) string // formats the label of a tick; nil means the shortest decimal
	Whole  bool                 // ticks at whole numbers only
	Time   bool                 // values are seconds
}

// Shape is the way in which a series is drawn.
type Shape uint8

// Values of Shape.
const (
	Line Shape = iota // a line through Y, with dots if there are at most maxLineDots points
	Band              // the area from Low to Y
	Dots              // points at Y that are not connected
)

// Sizes of dots and lines, in pixels. A line with more than maxLineDots points has no dots and is
// thin.
const (
	lineDot, freeDot    = 2.6, 3.4
	lineWidth, thinLine = 2.2, 1.3
	maxLineDots         = 60
)

// Series is one set of points. NaN leaves a gap.
type Series struct {
	Name   string
	Shape  Shape
	Color  int // index in the palette
	X, Y   []float64
	Low    []float64 // lower edge of a Band
	Dashed bool
}

// Bar is one bar with its name.
type Bar struct {
	Name  string
	Value float64
	Color int
}

// palette is the palette of Okabe and Ito, which color-blind readers can distinguish, without
// yellow, which is too light for lines on white, and with a gray instead of black.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff},
	{0xcc, 0x79, 0xa7, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x55, 0x55, 0x55, 0xff},
}

// Colors is the number of distinct colors in the palette.
const Colors = 7

func shade(i int) color.RGBA { return palette[((i%len(palette))+len(palette))%len(palette)] }

var (
	paper = color.RGBA{0xff, 0xff, 0xff, 0xff}
	ink   = color.RGBA{0x22, 0x2b, 0x35, 0xff}
	faint = color.RGBA{0x66, 0x70, 0x7c, 0xff}
	grid  = color.RGBA{0xe3, 0xe7, 0xec, 0xff}
	frame = color.RGBA{0xb4, 0xbc, 0xc6, 0xff}
)

type point struct{ x, y float64 }

// canvas is a drawing surface. Lengths are in pixels, and y grows downwards.
type canvas interface {
	line(points []point, c color.RGBA, width float64, dashed bool)
	area(points []point, c color.RGBA, opacity float64)
	dot(at point, radius float64, c color.RGBA)
	text(at point, s string, st style)
}

type style struct {
	size     float64
	color    color.RGBA
	align    float64 // 0: starts at the point; 0.5: centred on it; 1: ends there
	bold     bool
	vertical bool
}

// Lengths of the layout, in pixels.
const (
	panelWidth, panelHeight  = 470.0, 330.0
	margin                   = 18.0
	headHeight               = 60.0
	left, right, top, bottom = 66.0, 14.0, 58.0, 46.0
	legendRow                = 18.0
	barTop                   = 30.0
	barRight                 = 64.0
	barStep, tallBarStep     = 22.0, 38.0 // heights of a bar with its name beside it, and above it
	maxNameBeside            = 14         // letters
)

// size returns the width and height of the page.
func (f Figure) size() (width, height float64) {
	columns := f.columns()
	height = headHeight + margin
	for from := 0; from < len(f.Panels); from += columns {
		height += f.rowHeight(from)
	}
	return 2*margin + float64(columns)*panelWidth, height
}

func (f Figure) columns() int {
	if f.Columns > 0 {
		return max(min(f.Columns, len(f.Panels)), 1)
	}
	return max(len(f.Panels), 1)
}

// rowHeight returns the height of the row that begins with the panel at the given index.
func (f Figure) rowHeight(from int) (height float64) {
	for _, p := range f.Panels[from:min(from+f.columns(), len(f.Panels))] {
		height = max(height, p.height())
	}
	return height
}

func (p Panel) height() float64 {
	if len(p.Bars) == 0 {
		return panelHeight + legendRow*float64(len(p.legendRows())-1)
	}
	step := barStep
	if p.namesAbove() {
		step = tallBarStep
	}
	return barTop + bottom + step*float64(len(p.Bars))
}

// namesAbove reports whether the names of bars are too long to stand beside the bars.
func (p Panel) namesAbove() bool {
	return slices.ContainsFunc(p.Bars, func(b Bar) bool { return len(b.Name) > maxNameBeside })
}

// draw draws the figure.
func (f Figure) draw(c canvas) {
	width, height := f.size()
	c.area([]point{{0, 0}, {width, 0}, {width, height}, {0, height}}, paper, 1)
	c.text(point{margin, 30}, f.Title, style{size: 19, color: ink, bold: true})
	c.text(point{margin, 50}, f.Subtitle, style{size: 13, color: faint})
	columns, y := f.columns(), headHeight
	for from := 0; from < len(f.Panels); from += columns {
		for i, p := range f.Panels[from:min(from+columns, len(f.Panels))] {
			p.draw(c, margin+float64(i)*panelWidth, y)
		}
		y += f.rowHeight(from)
	}
}

// draw draws the panel with its upper left corner at x, y.
func (p Panel) draw(c canvas, x, y float64) {
	c.text(point{x, y + 18}, p.Title, style{size: 14, color: ink, bold: true})
	if len(p.Bars) > 0 {
		p.drawBars(c, x, y)
		return
	}
	rows := p.legendRows()
	more := legendRow * float64(len(rows)-1)
	for i, row := range rows {
		drawLegend(c, row, x, y+40+legendRow*float64(i))
	}
	box := area{x + left, y + top + more, panelWidth - left - right, panelHeight - top - bottom}
	xs, ys := p.scales()
	p.axes(c, box, xs, ys)
	for i, s := range p.Spans {
		s.draw(c, box, xs, i)
	}
	at := func(vx, vy float64) point {
		return point{box.x + xs.place(vx)*box.w, box.y + (1-ys.place(vy))*box.h}
	}
	for _, s := range p.Series {
		s.draw(c, at)
	}
}

// area is a rectangle.
type area struct{ x, y, w, h float64 }

// scales returns axes that fit the data.
func (p Panel) scales() (xs, ys scale) {
	var allX, allY []float64
	for _, s := range p.Series {
		allX, allY = append(allX, s.X...), append(append(allY, s.Y...), s.Low...)
	}
	return newScale(p.X, allX, false), newScale(p.Y, allY, true)
}

func (p Panel) axes(c canvas, box area, xs, ys scale) {
	for _, t := range ys.ticks() {
		y := box.y + (1-ys.place(t))*box.h
		c.line([]point{{box.x, y}, {box.x + box.w, y}}, grid, 1, false)
		c.text(point{box.x - 8, y + 4}, p.Y.format(t), style{size: 12, color: faint, align: 1})
	}
	for _, t := range xs.ticks() {
		x := box.x + xs.place(t)*box.w
		c.line([]point{{x, box.y + box.h}, {x, box.y + box.h + 4}}, frame, 1, false)
		c.text(point{x, box.y + box.h + 18}, p.X.format(t),
			style{size: 12, color: faint, align: .5})
	}
	c.line([]point{{box.x, box.y + box.h}, {box.x + box.w, box.y + box.h}}, frame, 1.2, false)
	c.text(point{box.x + box.w/2, box.y + box.h + 38}, p.X.Label,
		style{size: 12.5, color: ink, align: .5})
	c.text(point{box.x - 52, box.y + box.h/2}, p.Y.Label,
		style{size: 12.5, color: ink, align: .5, vertical: true})
}

// legendRows divides the named series into rows that fit into the panel. There is at least one row.
func (p Panel) legendRows() [][]Series {
	rows, width := [][]Series{nil}, 0.0
	for _, s := range p.Series {
		if s.Name == "" {
			continue
		}
		w := legendWidth(s.Name)
		if width+w > panelWidth && width > 0 {
			rows, width = append(rows, nil), 0
		}
		rows[len(rows)-1], width = append(rows[len(rows)-1], s), width+w
	}
	return rows
}

func legendWidth(name string) float64 { return 23 + textWidth(name, 12) + 14 }

// drawLegend draws the names of series, starting at x.
func drawLegend(c canvas, row []Series, x, y float64) {
	for _, s := range row {
		hue := shade(s.Color)
		switch s.Shape {
		case Band:
			c.area([]point{{x, y - 9}, {x + 18, y - 9}, {x + 18, y + 1}, {x, y + 1}}, hue, .22)
		case Dots:
			c.dot(point{x + 9, y - 4}, freeDot, hue)
		case Line:
			c.line([]point{{x, y - 4}, {x + 18, y - 4}}, hue, lineWidth, s.Dashed)
		}
		c.text(point{x + 23, y}, s.Name, style{size: 12, color: ink})
		x += legendWidth(s.Name)
	}
}

// draw draws the span with the given index. Labels of consecutive spans are in different lines.
func (s Span) draw(c canvas, box area, xs scale, index int) {
	const lines, lineHeight = 4, 13
	if s.From > xs.hi {
		return
	}
	from, to := box.x+xs.place(s.From)*box.w, box.x+xs.place(s.To)*box.w
	to = max(to, from+1.5)
	c.area([]point{{from, box.y}, {to, box.y}, {to, box.y + box.h}, {from, box.y + box.h}},
		shade(4), .16)
	c.text(point{from + 3, box.y + 12 + lineHeight*float64(index%lines)}, s.Label,
		style{size: 10, color: ink})
}

func (s Series) draw(c canvas, at func(x, y float64) point) {
	hue := shade(s.Color)
	width := lineWidth
	if len(s.X) > maxLineDots {
		width = thinLine
	}
	var all, run, back []point
	flush := func() {
		switch {
		case len(run) == 0:
		case s.Shape == Band:
			slices.Reverse(back)
			c.area(append(run, back...), hue, .22)
		case s.Shape == Line:
			c.line(run, hue, width, s.Dashed)
		}
		run, back = nil, nil
	}
	for i := range min(len(s.X), len(s.Y)) {
		if math.IsNaN(s.Y[i]) || math.IsNaN(s.X[i]) {
			flush()
			continue
		}
		run, all = append(run, at(s.X[i], s.Y[i])), append(all, at(s.X[i], s.Y[i]))
		if s.Shape == Band {
			back = append(back, at(s.X[i], s.Low[i]))
		}
	}
	flush()
	radius := lineDot
	switch {
	case s.Shape == Dots:
		radius = freeDot
	case s.Shape == Band || len(all) > maxLineDots:
		return
	}
	for _, d := range all {
		c.dot(d, radius, hue)
	}
}

// drawBars draws the bars with their values on the right. The names stand beside or above the bars.
func (p Panel) drawBars(c canvas, x, y float64) {
	var values []float64
	for _, b := range p.Bars {
		values = append(values, b.Value)
	}
	xs := newScale(p.X, values, true)
	above, step, offset := p.namesAbove(), barStep, 8+textWidth("m", 12)*maxNameBeside*.9
	if above {
		step, offset = tallBarStep, 4
	}
	box := area{x + offset, y + barTop, panelWidth - offset - barRight, step * float64(len(p.Bars))}
	for _, t := range xs.ticks() {
		x := box.x + xs.place(t)*box.w
		c.line([]point{{x, box.y}, {x, box.y + box.h}}, grid, 1, false)
		c.text(point{x, box.y + box.h + 18}, p.X.format(t),
			style{size: 12, color: faint, align: .5})
	}
	for i, b := range p.Bars {
		from, w := box.y+float64(i)*step+4, xs.place(b.Value)*box.w
		if above {
			c.text(point{box.x + 2, from + 9}, b.Name, style{size: 12, color: ink})
			from += 14
		} else {
			c.text(point{box.x - 8, from + 11.5}, b.Name, style{size: 12, color: ink, align: 1})
		}
		c.area([]point{{box.x, from}, {box.x + w, from}, {box.x + w, from + 15},
			{box.x, from + 15}}, shade(b.Color), .85)
		c.text(point{box.x + w + 6, from + 11.5}, p.X.format(b.Value), style{size: 12, color: ink})
	}
	c.line([]point{{box.x, box.y}, {box.x, box.y + box.h}}, frame, 1.2, false)
	c.text(point{box.x + box.w/2, box.y + box.h + 38}, p.X.Label,
		style{size: 12.5, color: ink, align: .5})
}

func (a Axis) format(v float64) string {
	if a.Format != nil {
		return a.Format(v)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// textWidth returns an estimate of the width of a text in pixels, which is needed to place texts
// side by side.
func textWidth(s string, size float64) float64 { return float64(len([]rune(s))) * size * .52 }
