package plot

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pixels is the number of pixels of a PNG, in each direction, for each pixel of the layout. A
// number above one keeps the image sharp on high-resolution screens.
const pixels = 2

// WritePNG writes the figure as PNG. The image is twice as large as the nominal size of the SVG.
func (f Figure) WritePNG(w io.Writer) error {
	width, height := f.size()
	r := &raster{img: image.NewRGBA(image.Rect(0, 0, int(width*pixels), int(height*pixels))),
		faces: map[style]font.Face{}}
	var err error
	if r.regular, err = opentype.Parse(goregular.TTF); err == nil {
		r.medium, err = opentype.Parse(gomedium.TTF)
	}
	if err != nil {
		return fmt.Errorf("read the built-in font: %w", err)
	}
	f.draw(r)
	if r.err != nil {
		return fmt.Errorf("draw the plot: %w", r.err)
	}
	if err := png.Encode(w, r.img); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// raster is a canvas of pixels.
type raster struct {
	img             *image.RGBA
	regular, medium *opentype.Font
	faces           map[style]font.Face // by size and weight of the text
	err             error               // the first failure of a font
}

// fill fills the areas within closed outlines.
func (r *raster) fill(c color.RGBA, opacity float64, outlines ...[]point) {
	around := surrounding(outlines).Intersect(r.img.Bounds())
	if around.Empty() {
		return
	}
	v := vector.NewRasterizer(around.Dx(), around.Dy())
	x0, y0 := float32(around.Min.X), float32(around.Min.Y)
	for _, o := range outlines {
		for i, p := range o {
			x, y := float32(p.x*pixels)-x0, float32(p.y*pixels)-y0
			if i == 0 {
				v.MoveTo(x, y)
			} else {
				v.LineTo(x, y)
			}
		}
		v.ClosePath()
	}
	a := uint8(math.Round(255 * opacity))
	v.Draw(r.img, around, image.NewUniform(color.NRGBA{c.R, c.G, c.B, a}), image.Point{})
}

// surrounding returns the smallest rectangle of whole pixels around the outlines.
func surrounding(outlines [][]point) (around image.Rectangle) {
	for _, o := range outlines {
		for _, p := range o {
			x, y := p.x*pixels, p.y*pixels
			at := image.Rect(int(math.Floor(x)), int(math.Floor(y)), int(math.Floor(x))+1,
				int(math.Floor(y))+1)
			around = around.Union(at)
		}
	}
	return around
}

func (r *raster) area(points []point, c color.RGBA, opacity float64) { r.fill(c, opacity, points) }

func (r *raster) dot(at point, radius float64, c color.RGBA) { r.fill(c, 1, circle(at, radius)) }

// circle returns the outline of a circle. Its points have the same sense of rotation as the
// outlines of line segments. With the opposite sense, the areas of a joint and of a segment would
// cancel each other where they overlap.
func circle(at point, radius float64) []point {
	const corners = 20
	outline := make([]point, corners)
	for i := range outline {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		outline[i] = point{at.x + radius*cos, at.y + radius*sin}
	}
	return outline
}

// line draws each segment as a rectangle, with round joints between them.
func (r *raster) line(points []point, c color.RGBA, width float64, dashed bool) {
	if dashed {
		for _, part := range dashes(points, 6, 4) {
			r.line(part, c, width, false)
		}
		return
	}
	var outlines [][]point
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		length := math.Hypot(b.x-a.x, b.y-a.y)
		if length == 0 {
			continue
		}
		dx, dy := (b.x-a.x)/length*width/2, (b.y-a.y)/length*width/2
		outlines = append(outlines, []point{{a.x + dy, a.y - dx}, {b.x + dy, b.y - dx},
			{b.x - dy, b.y + dx}, {a.x - dy, a.y + dx}})
		if i > 1 {
			outlines = append(outlines, circle(a, width/2))
		}
	}
	r.fill(c, 1, outlines...)
}

// dashes cuts a line into dashes, which have the length on, and gaps, which have the length off.
func dashes(points []point, on, off float64) (parts [][]point) {
	left, drawing := on, true
	var part []point
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		for {
			if drawing && len(part) == 0 {
				part = []point{a}
			}
			length := math.Hypot(b.x-a.x, b.y-a.y)
			if length <= left {
				left -= length
				if drawing {
					part = append(part, b)
				}
				break
			}
			a = point{a.x + (b.x-a.x)*left/length, a.y + (b.y-a.y)*left/length}
			if drawing {
				parts, part = append(parts, append(part, a)), nil
				left = off
			} else {
				left = on
			}
			drawing = !drawing
		}
	}
	if len(part) > 1 {
		parts = append(parts, part)
	}
	return parts
}

// face returns the font for a style's size and weight. If there is an error, face records it in
// r.err and returns nil.
func (r *raster) face(st style) font.Face {
	key := style{size: st.size, bold: st.bold}
	if f, ok := r.faces[key]; ok {
		return f
	}
	source := r.regular
	if st.bold {
		source = r.medium
	}
	f, err := opentype.NewFace(source, &opentype.FaceOptions{Size: st.size * pixels, DPI: 72,
		Hinting: font.HintingNone})
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return nil
	}
	r.faces[key] = f
	return f
}

func (r *raster) text(at point, s string, st style) {
	face := r.face(st)
	if face == nil || s == "" {
		return
	}
	d := font.Drawer{Dst: r.img, Src: image.NewUniform(st.color), Face: face}
	width := float64(d.MeasureString(s)) / 64
	if !st.vertical {
		d.Dot = fixed.Point26_6{X: fixed.Int26_6((at.x*pixels - st.align*width) * 64),
			Y: fixed.Int26_6(at.y * pixels * 64)}
		d.DrawString(s)
		return
	}
	// Vertical text is drawn into a separate image, which is then rotated to the left.
	size := int(math.Ceil(st.size * pixels * 1.5))
	aside := image.NewRGBA(image.Rect(0, 0, int(math.Ceil(width)), size))
	base := int(st.size * pixels * 1.1)
	d.Dst, d.Dot = aside, fixed.P(0, base)
	d.DrawString(s)
	turned := image.NewRGBA(image.Rect(0, 0, size, aside.Bounds().Dx()))
	for y := range aside.Bounds().Dy() {
		for x := range aside.Bounds().Dx() {
			turned.SetRGBA(y, aside.Bounds().Dx()-1-x, aside.RGBAAt(x, y))
		}
	}
	corner := image.Pt(int(at.x*pixels)-base, int(at.y*pixels-(1-st.align)*width))
	draw.Draw(r.img, turned.Bounds().Add(corner), turned, image.Point{}, draw.Over)
}
