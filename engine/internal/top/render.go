//penstock:pure

package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/internal/live"
)

// Styles of text. They use the terminal's own colors.
const (
	bold    = "\x1b[1m"
	faint   = "\x1b[2m"
	inverse = "\x1b[7m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	reset   = "\x1b[0m"
)

// Minimum width and height of the display.
const (
	leastWidth  = 40
	leastHeight = 8
	detailLines = 9
	mostRoutes  = 6 // maximum number of routes shown, besides the selected one
)

// Render returns the display as at most Height lines of at most Width columns, or a message if the
// terminal is too small.
func (s *State) Render() string {
	if s.Width < leastWidth || s.Height < leastHeight {
		return "the terminal is too small"
	}
	if s.frame == nil {
		if s.trouble != "" {
			return s.line(red, "not connected: "+s.trouble) + "\n" + s.line(faint, "q quits")
		}
		return s.line(faint, "connecting")
	}
	rows := s.rows()
	at := s.at(rows)
	lines := s.head()
	lines = append(lines, s.routes(rows, at)...)
	var detail []string
	switch {
	case s.help:
		detail = s.helpLines()
	case s.detail && len(rows) > 0:
		detail = s.details(rows[at])
	}
	room := s.Height - len(lines) - len(detail) - 2 // 2 lines for header and footer
	if room < 1 {
		detail, room = nil, max(1, s.Height-len(lines)-2)
	}
	lines = append(lines, s.workers(rows, at, room)...)
	lines = append(lines, detail...)
	if len(lines) > s.Height-1 {
		lines = lines[:s.Height-1]
	}
	return strings.Join(append(lines, s.foot(len(rows))), "\n")
}

func (s *State) head() []string {
	f := s.frame
	style, state := green, "ready"
	if !f.Ready {
		style, state = red, "NOT READY: "+strings.Join(f.Problems, "; ")
	}
	about := fmt.Sprintf("penstock %s, process %d, running for %s: ", f.Program, f.PID, Span(f.Seconds))
	first := bold + cut(about, s.Width) + reset
	if rest := s.Width - utf8.RuneCountInString(about); rest > 0 {
		first += style + cut(clean(state), rest) + reset
	}
	if s.trouble != "" {
		first = s.line(red, "DISCONNECTED, figures are old: "+s.trouble)
	}
	return []string{first}
}

// columns returns a line of cells. All cells but the first have fixed widths and are aligned to the
// right. The first cell takes the remaining width, at least 24 columns. The last cells are left out
// if they do not fit.
func (s *State) columns(first string, cells []string, widths []int) string {
	left := s.Width
	var b strings.Builder
	var shown []int
	for i, w := range widths {
		if left-w-1 < 24 {
			break
		}
		left -= w + 1
		shown = append(shown, i)
	}
	b.WriteString(pad(first, left))
	for _, i := range shown {
		b.WriteString(" " + padLeft(cells[i], widths[i]))
	}
	return b.String()
}

var routeWidths = []int{9, 9, 9, 9, 10, 9, 7, 10}

// parkedAt is the index of the column of parked records. This column is shown only if a route has
// parked records.
const (
	parkedAt    = 4
	parkedWidth = 9
)

func (s *State) routes(rows []row, at int) []string {
	header := []string{"deliv/s", "read/s", "in flight", "waiting", "backlog", "drain", "dead", "health"}
	widths := routeWidths
	parks := slices.ContainsFunc(s.frame.Routes, func(r live.Route) bool { return r.Parked > 0 })
	if parks {
		header = slices.Insert(header, parkedAt, "parked")
		widths = slices.Insert(slices.Clone(widths), parkedAt, parkedWidth)
	}
	out := []string{s.line(faint, s.columns("route", header, widths))}
	selected := ""
	if len(rows) > 0 {
		selected = rows[at].Route
	}
	var held string
	more := 0
	for i := range s.frame.Routes {
		r := &s.frame.Routes[i]
		name := r.Pipeline + "/" + r.Name
		if name == selected {
			held = "limited by " + r.Held
			if r.Error != "" {
				held = r.Error
			}
		}
		if i >= mostRoutes && name != selected {
			more++
			continue
		}
		style := ""
		switch r.Health {
		case "stopped":
			style = red
		case "restarting", "draining":
			style = yellow
		}
		cells := []string{
			Figure(r.DeliveredRate), Figure(r.ReadRate), Figure(float64(r.InFlight)),
			Figure(float64(r.Waiting)), Bytes(r.LagBytes), drain(r), Figure(float64(r.Dead)), r.Health,
		}
		if parks {
			cells = slices.Insert(cells, parkedAt, Figure(float64(r.Parked)))
		}
		out = append(out, s.line(style, s.columns(clean(name), cells, widths)))
	}
	if more > 0 {
		out = append(out, s.line(faint, fmt.Sprintf("%d more routes", more)))
	}
	if held != "" {
		out = append(out, s.line(bold, selected+": "+clean(held)))
	}
	return append(out, "")
}

func drain(r *live.Route) string {
	switch {
	case r.DrainSeconds < 0:
		return "-"
	case r.DrainSeconds == 0:
		return "drained"
	case r.DrainSeconds < 1:
		return "< 1s"
	}
	return Span(r.DrainSeconds)
}

var workerWidths = []int{11, 11, 7, 9, 9, 9, 8}

func (s *State) workers(rows []row, at, room int) []string {
	header := []string{"state", "gate", "flight", "window", "trip", "batch/s", "failed"}
	out := []string{s.line(faint, s.columns("worker", header, workerWidths))}
	from := min(max(0, at-room/2), max(0, len(rows)-room))
	for i := from; i < min(len(rows), from+room); i++ {
		r := &rows[i]
		w := r.worker
		style := ""
		switch attention(w) {
		case 0:
		case 1, 2, 3:
			style = yellow
		default:
			style = red
		}
		if i == at {
			style += inverse
		}
		name := clean(r.Name)
		if len(s.frame.Routes) > 1 {
			name = clean(r.Route) + " " + name
		}
		out = append(out, s.line(style, s.columns(name, []string{
			w.State, w.Gate, fmt.Sprint(w.InFlight), Figure(w.Window), Seconds(w.RoundTrip),
			Figure(w.Rate), Figure(float64(w.Failed)),
		}, workerWidths)))
	}
	for len(out) < room+1 {
		out = append(out, "")
	}
	return out
}

func (s *State) details(r row) []string {
	w := r.worker
	out := []string{
		s.line(faint, strings.Repeat("─", s.Width)), s.line(bold, clean(r.Route+"  "+r.Name)),
		"state       " + w.State, "            " + clean(w.Reason),
		"gate        " + w.Gate + ": " + clean(w.Words),
		fmt.Sprintf("window      %s, %d in flight", Figure(w.Window), w.InFlight),
		fmt.Sprintf("round trip  %s, %s when idle, overdue after %s",
			Seconds(w.RoundTrip), Seconds(w.Base), Seconds(w.Timeout)),
		fmt.Sprintf("attempts    %d delivered, %d failed, %d throttled", w.Delivered, w.Failed, w.Throttled),
	}
	if w.Misconfigured {
		out[2] += ", misconfigured"
	}
	for i := 2; i < len(out); i++ {
		out[i] = s.line("", out[i])
	}
	return append(out, make([]string, detailLines-len(out))...)
}

func (s *State) helpLines() []string {
	out := []string{s.line(faint, strings.Repeat("─", s.Width))}
	for _, text := range []string{
		"j k, arrows   select a worker          enter   details of the worker",
		"s S           next, previous order     r       reverse the order",
		"/             filter by route, worker, state or gate; esc clears it",
		"g G           first, last worker       q       quit",
	} {
		out = append(out, s.line("", text))
	}
	return out
}

func (s *State) foot(count int) string {
	if s.typing {
		return s.line("", "filter: "+clean(s.filter)+"█")
	}
	workers := "workers"
	if count == 1 {
		workers = "worker"
	}
	text := fmt.Sprintf("%d %s by %s", count, workers, s.order)
	if s.reversed {
		text += ", reversed"
	}
	if s.filter != "" {
		text += fmt.Sprintf(", with %q", s.filter)
	}
	return s.line(faint, text+"   s order  / filter  enter details  ? keys  q quit")
}

// line cuts a text to the width of the display and applies a style.
func (s *State) line(style, text string) string {
	text = cut(text, s.Width)
	if style == "" {
		return text
	}
	return style + text + reset
}

// clean replaces control characters, so that a name cannot control the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

func pad(text string, width int) string {
	text = cut(text, width)
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func padLeft(text string, width int) string {
	text = cut(text, width)
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))) + text
}

// Figure formats a number in a short form, such as 12.3, 99999 or 123.4k.
func Figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e9:
		return fmt.Sprintf("%.1fG", v/1e9)
	case a >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case a >= 1e5:
		return fmt.Sprintf("%.1fk", v/1e3)
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a < 0.05:
		return "0"
	}
	return fmt.Sprintf("%.1f", v)
}

// Bytes formats a size. It returns "-" for a negative size, which means unknown.
func Bytes(n int64) string {
	if n < 0 {
		return "-"
	}
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 || v >= 100 {
		return fmt.Sprintf("%.0f %s", v, units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// Seconds formats a short time. It returns "-" for 0.
func Seconds(s float64) string {
	switch {
	case s <= 0:
		return "-"
	case s < 1e-3:
		return fmt.Sprintf("%.0fµs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.0fms", s*1e3)
	case s < 60:
		return fmt.Sprintf("%.1fs", s)
	}
	return Span(s)
}

// Span formats a longer time.
func Span(s float64) string {
	d := time.Duration(s * float64(time.Second)).Round(time.Second)
	if d >= 24*time.Hour {
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.String()
}
