package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/plot"
)

func sample() plot.Figure {
	x := []float64{0, 1, 2, 3, 4}
	return plot.Figure{
		Title: `a <b> & "c"`, Subtitle: "below",
		Panels: []plot.Panel{
			{
				Title: "lines", X: plot.Axis{Label: "step", Whole: true},
				Y: plot.Axis{Label: "wait", Time: true},
				Spans: []plot.Span{{From: 1, To: 2, Label: "outage"},
					{From: 3, To: 3, Label: "restart"}, {From: 9, To: 10, Label: "outside"}},
				Series: []plot.Series{
					{Name: "range", Shape: plot.Band, X: x, Y: []float64{1, 2, 4, 8, 8},
						Low: []float64{0, 0, 0, 0, 0}},
					{Name: "mean", X: x, Y: []float64{.5, 1, math.NaN(), 4, 4}},
					{Name: "drawn", Shape: plot.Dots, Color: 1, X: x, Y: []float64{.1, 2, 3, 7, 1}},
					{Name: "formula", X: x, Y: []float64{1, 1, 1, 1, 1}, Dashed: true, Color: 2},
				},
			},
			{Title: "bars", X: plot.Axis{Label: "attempts", Log: true},
				Bars: []plot.Bar{{Name: "none", Value: 30000},
					{Name: "exponential base=100ms max=30s", Value: 28}}},
		},
	}
}

func TestSVGIsWellFormedAndSaysEverything(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	text, elements := "", map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			text += string(token)
		}
	}
	for _, want := range []string{
		`a <b> & "c"`, "lines", "range", "mean", "drawn", "none", "exponential base=100ms max=30s",
		"30000", "step", "outage", "restart",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the figure", want)
		}
	}
	if elements["polygon"] != 1+1+1+2+2 { // page, band, its legend, two spans, two bars
		t.Errorf("%d areas, want 7", elements["polygon"])
	}
	if strings.Contains(text, "outside") {
		t.Error("a span beyond the axis is drawn")
	}
	if strings.Contains(b.String(), "NaN") {
		t.Error("NaN reached the drawing")
	}
	var again bytes.Buffer
	if err := sample().WriteSVG(&again); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("the same figure gave other bytes, %v", err)
	}
}

func TestPNGShowsTheSeries(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WritePNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.Color]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			counts[img.At(x, y)]++
		}
	}
	for name, c := range map[string]color.RGBA{
		"paper": {255, 255, 255, 255}, "line": {0, 0x72, 0xb2, 255}, "dots": {0xd5, 0x5e, 0, 255},
		"dashes": {0, 0x9e, 0x73, 255},
	} {
		if counts[c] < 100 {
			t.Errorf("%s: %d pixels of its colour", name, counts[c])
		}
	}
	if size := img.Bounds().Size(); size != (image.Point{1952, 816}) {
		t.Errorf("size %v", size)
	}
}

// TestDots checks which points of a series get a dot.
func TestDots(t *testing.T) {
	for _, c := range []struct {
		name           string
		shape          plot.Shape
		points, gap, n int
	}{
		{"dots", plot.Dots, 3, -1, 3},
		{"many dots", plot.Dots, 61, -1, 61},
		{"dots with a gap", plot.Dots, 5, 2, 4},
		{"line", plot.Line, 60, -1, 60},
		{"long line", plot.Line, 61, -1, 0},
		{"long line with a gap", plot.Line, 70, 50, 0},
		{"line with a gap", plot.Line, 5, 2, 4},
		{"band", plot.Band, 5, -1, 0},
	} {
		s := plot.Series{Shape: c.shape}
		for i := range c.points {
			y := float64(i)
			if i == c.gap {
				y = math.NaN()
			}
			s.X, s.Y, s.Low = append(s.X, float64(i)), append(s.Y, y), append(s.Low, 0)
		}
		var out bytes.Buffer
		if err := (plot.Figure{Panels: []plot.Panel{{Series: []plot.Series{s}}}}).WriteSVG(&out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "<circle"); got != c.n {
			t.Errorf("%s: %d dots, want %d", c.name, got, c.n)
		}
	}
}

// FuzzFigure draws figures of random values, including NaN and infinities. The figure must have a
// limited size, and must contain no NaN and no infinity.
func FuzzFigure(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, false, false)
	f.Add(math.NaN(), math.Inf(1), math.Inf(-1), true, true)
	f.Add(0.0, 0.0, 0.0, true, false)
	f.Add(-5.0, 1e300, 5e-324, true, true)
	f.Fuzz(func(t *testing.T, a, b, c float64, log, clock bool) {
		axis := plot.Axis{Log: log, Time: clock}
		fig := plot.Figure{Panels: []plot.Panel{
			{X: axis, Y: axis, Series: []plot.Series{{X: []float64{a, b, c},
				Y: []float64{b, c, a}}}},
			{X: axis, Bars: []plot.Bar{{Value: a}, {Value: b}, {Value: c}}},
		}}
		var out bytes.Buffer
		if err := fig.WriteSVG(&out); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); len(text) > 1<<20 || strings.Contains(text, `"NaN"`) ||
			strings.Contains(text, "Inf,") {
			t.Errorf("%d bytes: %.300s", len(text), text)
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsComeThrough(t *testing.T) {
	if err := sample().WriteSVG(broken{}); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
	if err := sample().WritePNG(broken{}); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
}
