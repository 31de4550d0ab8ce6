//penstock:pure

// Package top implements the display of `penstock top`. A [State] processes keys and frames
// (snapshots of the running engine), and renders the display as lines of text. The command itself
// reads and writes the terminal and connects to the running process.
package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/internal/live"
)

// Order is an order of the workers in the display.
type Order uint8

// Values of Order.
const (
	ByAttention Order = iota // workers that need attention first
	ByName
	ByRate
	ByRoundTrip
	ByWindow
	ByFailed
	orders
)

// String returns the name of the order.
func (o Order) String() string {
	return [...]string{"attention", "name", "rate", "round trip", "window", "failed"}[o]
}

// State is the state of the display. Its zero value is ready to use.
type State struct {
	Width, Height int // of the terminal

	frame    *live.Frame
	trouble  string // why there is no current frame; "" if there is one
	order    Order
	reversed bool
	filter   string
	typing   bool // keys are characters of the filter
	selected row  // only Route and Name are used
	detail   bool
	help     bool
}

// row is a worker together with its route.
type row struct {
	Route  string
	Name   string
	worker *live.Worker
}

// Frame makes f the frame that is shown.
func (s *State) Frame(f *live.Frame) { s.frame, s.trouble = f, "" }

// Disconnected marks the shown frame as outdated, for the given reason.
func (s *State) Disconnected(reason string) { s.trouble = clean(reason) }

// Key processes a key, such as "j" or "enter". quit reports whether the key ends the program.
func (s *State) Key(key string) (quit bool) {
	if key == "ctrl+c" {
		return true
	}
	if s.typing {
		s.typed(key)
		return false
	}
	switch key {
	case "q":
		return true
	case "esc":
		switch {
		case s.help:
			s.help = false
		case s.detail:
			s.detail = false
		default:
			s.filter = ""
		}
	case "?", "h":
		s.help = !s.help
	case "/":
		s.typing = true
	case "s":
		s.order = (s.order + 1) % orders
	case "S":
		s.order = (s.order + orders - 1) % orders
	case "r":
		s.reversed = !s.reversed
	case "enter", "d":
		s.detail = !s.detail
	case "j", "down":
		s.move(1)
	case "k", "up":
		s.move(-1)
	case "pgdown", "ctrl+f":
		s.move(10)
	case "pgup", "ctrl+b":
		s.move(-10)
	case "g", "home":
		s.move(-1 << 30)
	case "G", "end":
		s.move(1 << 30)
	}
	return false
}

// maxFilter is the maximum length of the filter in bytes.
const maxFilter = 100

func (s *State) typed(key string) {
	switch key {
	case "enter":
		s.typing = false
	case "esc":
		s.typing, s.filter = false, ""
	case "backspace":
		if r := []rune(s.filter); len(r) > 0 {
			s.filter = string(r[:len(r)-1])
		}
	case "space":
		s.filter += " "
	default:
		if len([]rune(key)) == 1 && len(s.filter) < maxFilter {
			s.filter += key
		}
	}
}

// move moves the selection by n rows.
func (s *State) move(n int) {
	rows := s.rows()
	if len(rows) == 0 {
		return
	}
	to := min(max(s.at(rows)+n, 0), len(rows)-1)
	s.selected = row{Route: rows[to].Route, Name: rows[to].Name}
}

// at returns the index of the selected row. It returns 0 if rows does not have that row.
func (s *State) at(rows []row) int {
	return max(0, slices.IndexFunc(rows, func(r row) bool {
		return r.Route == s.selected.Route && r.Name == s.selected.Name
	}))
}

// rows returns the workers that match the filter, in the selected order.
func (s *State) rows() (out []row) {
	if s.frame == nil {
		return nil
	}
	wanted := strings.ToLower(s.filter)
	for i := range s.frame.Routes {
		r := &s.frame.Routes[i]
		for k := range r.Workers {
			x := row{Route: r.Pipeline + "/" + r.Name, Name: r.Workers[k].Name, worker: &r.Workers[k]}
			text := x.Route + " " + x.Name + " " + x.worker.State + " " + x.worker.Gate
			if strings.Contains(strings.ToLower(text), wanted) {
				out = append(out, x)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b row) int {
		n := s.compare(a, b)
		if s.reversed {
			n = -n
		}
		return cmp.Or(n, cmp.Compare(a.Route, b.Route), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// compare compares two rows in the selected order. Numbers are in descending order, and names in
// ascending order.
func (s *State) compare(a, b row) int {
	switch s.order {
	case ByAttention:
		return cmp.Or(cmp.Compare(attention(b.worker), attention(a.worker)),
			cmp.Compare(b.worker.RoundTrip, a.worker.RoundTrip))
	case ByRate:
		return cmp.Compare(b.worker.Rate, a.worker.Rate)
	case ByRoundTrip:
		return cmp.Compare(b.worker.RoundTrip, a.worker.RoundTrip)
	case ByWindow:
		return cmp.Compare(b.worker.Window, a.worker.Window)
	case ByFailed:
		return cmp.Compare(b.worker.Failed, a.worker.Failed)
	}
	return cmp.Compare(a.Name, b.Name)
}

// attention returns how urgently a worker needs attention.
func attention(w *live.Worker) int {
	return explain.Severity(w.State, w.Gate, w.InFlight, w.Misconfigured)
}
