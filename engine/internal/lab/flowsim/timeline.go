package flowsim

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// timeline draws a run over time as SVG. Its panels are stacked and have a common time axis. Events
// are shaded.
type timeline struct {
	w        *bufio.Writer
	s        *scenario.Scenario
	duration float64 // shown time in seconds
}

// panel is one diagram of a timeline.
type panel struct {
	title string
	lines []curve
}

type curve struct {
	name   string
	color  string
	values []float64 // one for each step; a negative value is a gap
	dashed bool
	faint  bool
}

const (
	pageWidth   = 960.0
	panelHeight = 150.0
	panelGap    = 46.0
	leftEdge    = 70.0
	rightEdge   = 150.0
	headHeight  = 74.0
)

// lineColors are colors of Okabe and Ito, which color-blind readers can distinguish, and a gray.
var lineColors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
	"#555555"}

// WriteTimeline draws a run with four panels: the windows of the first sender, the in-flight cost,
// the round trip and the goodput.
func WriteTimeline(to io.Writer, s *scenario.Scenario, spec *Spec, seed uint64, r *Series,
	f *scenario.Figures) error {
	t := timeline{w: bufio.NewWriter(to), s: s,
		duration: float64(len(r.InFlight)) * r.Step.Seconds()}
	panels := []panel{
		{"windows of the first sender", t.windows(r)},
		{"in flight (cost)", []curve{{color: lineColors[0], values: r.InFlight}}},
		{"mean round trip (ms)", []curve{{color: lineColors[0], values: r.RoundTrip}}},
		{"goodput (cost per second)", []curve{
			{name: "delivered", color: lineColors[0], values: r.Goodput},
			{name: "workers can", color: lineColors[1],
				values: r.Optimum, dashed: true},
		}},
	}
	height := headHeight + float64(len(panels))*(panelHeight+panelGap)
	t.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %g %g" `+
		`font-family="sans-serif">`+"\n",
		pageWidth, height, pageWidth, height)
	t.printf(`<rect width="%g" height="%g" fill="#ffffff"/>`+"\n", pageWidth, height)
	t.text(16, 26, 17, "start", fmt.Sprintf("%s: %s, seed %d", s.Name, spec.Title(), seed))
	t.text(16, 46, 12, "start", s.About)
	t.text(16, 63, 12, "start",
		fmt.Sprintf("goodput %.3f of the optimum, %.3g times the bandwidth-delay product in "+
			"flight, mean round trip %.4g ms",
			f[scenario.Goodput], f[scenario.Bloat], f[scenario.RTTMean]))
	for i, p := range panels {
		t.panel(p, headHeight+float64(i)*(panelHeight+panelGap)+20, r.Step.Seconds())
	}
	t.printf("</svg>\n")
	return t.w.Flush()
}

// windows returns one curve for each worker: its window over time. Workers with the same rate have
// the same color. The first worker of each rate is labeled with the rate. A link (a receiver with a
// delay that depends on its load) has no rate, and so no label.
func (t *timeline) windows(r *Series) []curve {
	var curves []curve
	var rates []float64
	for i, v := range r.Windows {
		rate := t.s.Workers[i].Rate
		at := -1
		for k, x := range rates {
			if x == rate {
				at = k
			}
		}
		c := curve{values: v}
		if at < 0 {
			at = len(rates)
			rates = append(rates, rate)
			if t.s.Link == nil {
				c.name = fmt.Sprintf("worker of %g/s", rate)
			}
		} else {
			c.faint = true
		}
		c.color = lineColors[at%len(lineColors)]
		curves = append(curves, c)
	}
	return curves
}

func (t *timeline) printf(format string, args ...any) { fmt.Fprintf(t.w, format, args...) }

func (t *timeline) text(x, y, size float64, anchor, s string) {
	t.printf(`<text x="%.1f" y="%.1f" font-size="%g" text-anchor="%s" fill="#222b35">%s</text>`+
		"\n", x, y, size, anchor,
		html.EscapeString(s))
}

func (t *timeline) x(seconds float64) float64 {
	return leftEdge + (pageWidth-leftEdge-rightEdge)*seconds/max(t.duration, 1e-9)
}

func (t *timeline) panel(p panel, top, step float64) {
	highest := 0.0
	for _, c := range p.lines {
		for _, v := range c.values {
			highest = max(highest, v)
		}
	}
	unit := roundStep(highest / 4)
	highest = max(unit, math.Ceil(highest/unit-1e-9)*unit)
	y := func(v float64) float64 { return top + panelHeight*(1-v/highest) }
	t.text(leftEdge, top-6, 13, "start", p.title)
	t.events(top)
	for v := 0.0; v <= highest*1.0001; v += unit {
		t.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#e3e7ec"/>`+"\n", leftEdge,
			y(v), pageWidth-rightEdge, y(v))
		t.text(leftEdge-6, y(v)+4, 11, "end", fmt.Sprintf("%g", math.Round(v*1e6)/1e6))
	}
	each := roundStep(t.duration / 8)
	for v := 0.0; v <= t.duration*1.0001; v += each {
		t.text(t.x(v), top+panelHeight+15, 11, "middle", fmt.Sprintf("%g s", math.Round(v*1e6)/1e6))
	}
	row := 0.0
	for _, c := range p.lines {
		t.curve(c, step, y)
		if c.name != "" {
			t.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`+
				"\n",
				pageWidth-rightEdge+10, top+10+row, pageWidth-rightEdge+26, top+10+row, c.color)
			t.text(pageWidth-rightEdge+31, top+14+row, 11, "start", c.name)
			row += 17
		}
	}
}

// events shades the times of the scenario's events in one panel, and labels them.
func (t *timeline) events(top float64) {
	for i := range t.s.Events {
		e := &t.s.Events[i]
		from, to := e.At.Seconds(), min(t.duration, e.Until(t.s.Duration).Seconds())
		if e.Kind == scenario.Restart {
			to = from
		}
		if from > t.duration {
			continue
		}
		width := max(1.5, t.x(to)-t.x(from))
		t.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#e69f00" `+
			`fill-opacity="0.16"><title>%s</title></rect>`+"\n",
			t.x(from), top, width, panelHeight, html.EscapeString(title(e)))
		t.text(t.x(from)+3, top+12+13*float64(i%4), 10, "start", title(e))
	}
	if b := t.s.Load.Burst; b.Batches > 0 {
		t.printf(`<rect x="%.1f" y="%.1f" width="1.5" height="%.1f" fill="#e69f00"/>`+"\n",
			t.x(b.At.Seconds()), top, panelHeight)
		t.text(t.x(b.At.Seconds())+3, top+12, 10, "start", fmt.Sprintf("burst of %d", b.Batches))
	}
	for i, at := range t.s.Joins {
		if at > 0 {
			t.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#e69f00" `+
				`stroke-dasharray="3 `+
				`3"><title>sender %d joins</title></line>`+"\n",
				t.x(at.Seconds()), top, t.x(at.Seconds()), top+panelHeight, i)
		}
	}
}

// title returns a description of an event.
func title(e *scenario.Event) string {
	what := [...]string{
		scenario.Rate: "other rate", scenario.Hang: "hang", scenario.Pause: "pause",
		scenario.Fail:     "errors",
		scenario.Throttle: "429", scenario.Restart: "restart", scenario.Credit: "advertises",
	}[e.Kind]
	switch {
	case e.Kind == scenario.Rate && e.Factor > 0:
		what = fmt.Sprintf("rate x%g", e.Factor)
	case e.Kind == scenario.Rate:
		what = fmt.Sprintf("rate %g/s", e.Limit)
	case e.Kind == scenario.Throttle:
		what = fmt.Sprintf("429 above %g/s", e.Limit)
	case e.Kind == scenario.Credit:
		what = fmt.Sprintf("advertises %g", e.Limit)
	}
	if len(e.Workers) == 1 {
		return fmt.Sprintf("worker %d: %s", e.Workers[0], what)
	}
	return fmt.Sprintf("%d workers: %s", len(e.Workers), what)
}

func (t *timeline) curve(c curve, step float64, y func(float64) float64) {
	var b strings.Builder
	pen := "M"
	for i, v := range c.values {
		if v < 0 {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, t.x(float64(i+1)*step), y(v))
		pen = "L"
	}
	extra := ""
	if c.dashed {
		extra = ` stroke-dasharray="5 4"`
	}
	if c.faint {
		extra += ` stroke-opacity="0.55"`
	}
	t.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.3"%s/>`+"\n", b.String(),
		c.color, extra)
}

// roundStep returns the smallest of the numbers 1, 2 and 5 times a power of ten that is at least v.
func roundStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// seriesStepMin is the minimum step of a series. It keeps the plot of a short run readable.
const seriesStepMin = time.Millisecond
