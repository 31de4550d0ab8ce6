package plot

import (
	"fmt"
	"image/color"
	"io"
	"strings"
)

// WriteSVG writes the figure as SVG. Equal figures give equal bytes.
func (f Figure) WriteSVG(w io.Writer) error {
	width, height := f.size()
	s := &svg{}
	fmt.Fprintf(&s.out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" `+
		`width="%[1]s" height="%[2]s" `+
		`font-family="Helvetica, Arial, sans-serif" role="img">`+"\n", number(width),
		number(height))
	fmt.Fprintf(&s.out, "<title>%s</title>\n", escape(f.Title))
	f.draw(s)
	s.out.WriteString("</svg>\n")
	if _, err := io.WriteString(w, s.out.String()); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

type svg struct{ out strings.Builder }

func (s *svg) line(points []point, c color.RGBA, width float64, dashed bool) {
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(&s.out, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%s" `+
		`stroke-linejoin="round"%s/>`+"\n",
		coordinates(points), hex(c), number(width), dash)
}

func (s *svg) area(points []point, c color.RGBA, opacity float64) {
	fmt.Fprintf(&s.out, `<polygon points="%s" fill="%s" fill-opacity="%s"/>`+"\n",
		coordinates(points), hex(c), number(opacity))
}

func (s *svg) dot(at point, radius float64, c color.RGBA) {
	fmt.Fprintf(&s.out, `<circle cx="%s" cy="%s" r="%s" fill="%s"/>`+"\n", number(at.x),
		number(at.y), number(radius), hex(c))
}

func (s *svg) text(at point, text string, st style) {
	if text == "" {
		return
	}
	extra := ""
	switch st.align {
	case .5:
		extra = ` text-anchor="middle"`
	case 1:
		extra = ` text-anchor="end"`
	}
	if st.bold {
		extra += ` font-weight="600"`
	}
	if st.vertical {
		extra += fmt.Sprintf(` transform="rotate(-90 %s %s)"`, number(at.x), number(at.y))
	}
	fmt.Fprintf(&s.out, `<text x="%s" y="%s" font-size="%s" fill="%s"%s>%s</text>`+"\n",
		number(at.x), number(at.y), number(st.size), hex(st.color), extra, escape(text))
}

func coordinates(points []point) string {
	var b strings.Builder
	for i, p := range points {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(number(p.x) + "," + number(p.y))
	}
	return b.String()
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// number formats a length with at most two decimals.
func number(x float64) string {
	text := strings.TrimRight(fmt.Sprintf("%.2f", x), "0")
	return strings.TrimSuffix(text, ".")
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace
