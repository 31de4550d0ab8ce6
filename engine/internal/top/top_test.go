package top

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/internal/live"
)

var styles = regexp.MustCompile(`\x1b\[\d*m`)

func frame(routes, workers int) *live.Frame {
	f := &live.Frame{Program: "devel", PID: 7, Seconds: 200, Ready: true}
	for r := range routes {
		route := live.Route{
			Pipeline:      "p",
			Name:          fmt.Sprintf("r%d", r),
			Health:        "running",
			Held:          "the workers: as much is in flight as each can bear",
			DeliveredRate: 15_234.5,
			LagBytes:      31 << 20,
			DrainSeconds:  31,
			Worst:         -1,
		}
		for w := range workers {
			route.Workers = append(route.Workers, live.Worker{
				Name: fmt.Sprintf(
					"http://worker-%d/",
					w,
				),
				State:     "NORMAL",
				Gate:      "window",
				Window:    float64(w),
				Words:     "4 batches are in flight",
				RoundTrip: 0.001 * float64(w+1),
				Rate:      float64(100 - w),
				Failed:    uint64(w % 3),
			})
		}
		f.Routes = append(f.Routes, route)
	}
	return f
}

func keys(s *State, all ...string) {
	for _, k := range all {
		s.Key(k)
	}
}

func plain(s *State) string { return styles.ReplaceAllString(s.Render(), "") }

// TestParkedColumn checks that parked records have a column if a route has some.
func TestParkedColumn(t *testing.T) {
	s := &State{Width: 132, Height: 24}
	f := frame(2, 1)
	s.Frame(f)
	if text := plain(s); strings.Contains(text, "parked") {
		t.Errorf("a column for parked records, of which there are none:\n%s", text)
	}
	f.Routes[1].Parked = 4321
	s.Frame(f)
	lines := strings.Split(plain(s), "\n")
	header, route := strings.Fields(lines[1]), strings.Fields(lines[3])
	if at := slices.Index(header, "parked"); at < 0 ||
		!strings.HasPrefix(strings.Join(route, " "), "p/r1") ||
		!strings.Contains(lines[3], Figure(4321)) {
		t.Errorf("no column for 4321 parked records:\n%s", strings.Join(lines[:4], "\n"))
	}
}

// TestRenderFits checks that the screen fits the terminal at every size. The screen must contain no
// control characters except those of its own styles, even if names contain them.
func TestRenderFits(t *testing.T) {
	f := frame(9, 30)
	f.Routes[3].Workers[2].Name = "evil\x1b[2J\r\n\u202e" + strings.Repeat("w", 300)
	f.Routes[3].Workers[2].Words = "\x07bell"
	f.Ready, f.Problems = false, []string{"disk: \x1b]0;title\x07 full"}
	for _, width := range []int{1, 39, 40, 61, 80, 132, 300} {
		for _, height := range []int{1, 8, 9, 15, 24, 60} {
			for _, press := range [][]string{nil, {"enter"}, {"?"}, {"/", "e", "v", "i", "l"}, {"G", "enter"}} {
				s := &State{Width: width, Height: height}
				s.Frame(f)
				keys(s, press...)
				lines := strings.Split(plain(s), "\n")
				if width >= leastWidth && height >= leastHeight && len(lines) > height {
					t.Fatalf("%dx%d %v: %d lines", width, height, press, len(lines))
				}
				for _, l := range lines {
					if strings.ContainsFunc(
						l, func(r rune) bool { return r < ' ' || r == '\u202e' },
					) {
						t.Fatalf("%dx%d %v: %q", width, height, press, l)
					}
					if width >= leastWidth && utf8.RuneCountInString(l) > width {
						t.Fatalf("%dx%d %v: %q is too long", width, height, press, l)
					}
				}
			}
		}
	}
}

// TestMoreRoutes checks the number of routes that are not shown.
func TestMoreRoutes(t *testing.T) {
	s := &State{Width: 132, Height: 40}
	s.Frame(frame(9, 1))
	for _, want := range []string{"3 more routes", "2 more routes"} {
		if text := plain(s); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
		keys(s, "G") // selects a worker of the last route
	}
}

func TestOrderAndFilter(t *testing.T) {
	s := &State{Width: 120, Height: 40}
	f := frame(1, 5)
	f.Routes[0].Workers[3].State = "OPEN"
	f.Routes[0].Workers[1].State = "SLOW"
	s.Frame(f)
	names := func() (out string) {
		for _, r := range s.rows() {
			out += strings.TrimSuffix(strings.TrimPrefix(r.Name, "http://worker-"), "/")
		}
		return out
	}
	for _, c := range []struct {
		keys []string
		want string
	}{
		{nil, "31420"}, {[]string{"s"}, "01234"}, {[]string{"r"}, "43210"}, {[]string{"r", "s"}, "01234"},
		{[]string{"s"}, "43210"}, {[]string{"s"}, "43210"}, {[]string{"s"}, "21403"},
		{[]string{"S", "S", "S", "S", "S"}, "31420"},
		{[]string{"/", "o", "p", "e", "n", "enter"}, "3"}, {[]string{"esc"}, "31420"},
		{[]string{"/", "x", "x", "backspace", "esc"}, "31420"},
	} {
		keys(s, c.keys...)
		if got := names(); got != c.want {
			t.Errorf("%v: %s, want %s", c.keys, got, c.want)
		}
	}
}

// TestSelection checks that the selection and the details stay on the same worker when the order of
// the workers changes.
func TestSelection(t *testing.T) {
	s := &State{Width: 120, Height: 24}
	s.Frame(frame(1, 50))
	keys(s, "s", "G", "k", "enter")
	last := s.rows()[48].Name
	if !strings.Contains(plain(s), "p/r0  "+last) {
		t.Errorf("the details are not of %s:\n%s", last, plain(s))
	}
	keys(s, "r")
	s.Frame(frame(1, 50))
	if s.selected.Name != last || !strings.Contains(plain(s), "p/r0  "+last) {
		t.Errorf("the selection moved to %s", s.selected.Name)
	}
	s.Frame(frame(1, 3)) // its worker is gone
	keys(s, "j")
	if got := s.selected.Name; got != s.rows()[1].Name {
		t.Errorf("selected %s", got)
	}
	if !s.Key("q") || !s.Key("ctrl+c") {
		t.Error("q and ctrl+c do not quit")
	}
	if keys(s, "/"); s.Key("q") || s.filter != "q" {
		t.Error("q in the filter quits")
	}
}

func TestMessages(t *testing.T) {
	s := &State{Width: 120, Height: 24}
	if got := plain(s); got != "connecting" {
		t.Error(got)
	}
	s.Disconnected("refused\x1b")
	if got := plain(s); !strings.HasPrefix(got, "not connected: refused?") {
		t.Error(got)
	}
	s.Frame(frame(2, 2))
	got := plain(s)
	for _, want := range []string{
		"running for 3m20s: ready", "p/r0: limited by the workers", "31.0 MiB", "31s", "NORMAL",
		"window", "4 workers by attention",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s.Disconnected("gone")
	if got := plain(s); !strings.HasPrefix(got, "DISCONNECTED, figures are old: gone") {
		t.Error(got)
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Figure(0.01), "0"}, {Figure(3), "3"}, {Figure(3.25), "3.2"}, {Figure(12345), "12345"},
		{Figure(123456), "123.5k"},
		{Figure(2e6), "2.0M"}, {Figure(3e9), "3.0G"}, {Bytes(-1), "-"}, {Bytes(12), "12 B"}, {Bytes(1536), "1.5 KiB"},
		{Seconds(0), "-"}, {Seconds(0.0000123), "12µs"}, {Seconds(0.25), "250ms"},
		{Seconds(2.5), "2.5s"}, {Span(61), "1m1s"},
		{Span(7200), "2h0m"}, {Span(90000), "1d1h"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}
