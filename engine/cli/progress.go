package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/status"
)

// Limits and sizes of the progress that is drawn on a terminal.
const (
	drawEvery   = 200 * time.Millisecond // interval of drawings
	mostRoutes  = 8                      // maximum number of routes; of more, only sums are drawn
	mostWorkers = 12                     // maximum number of workers of a route
	barWidth    = 24                     // characters
	rateOver    = 10 * time.Second       // time over which the speed is averaged
)

// progressView turns the status of an engine into lines to draw. It remembers the settled bytes of
// the last 10 s, to compute the speed.
type progressView struct {
	past []sighting
}

// sighting is the progress of all routes at one moment.
type sighting struct {
	at    time.Duration
	bytes []int64 // settled bytes of each route
}

// lines returns the lines to draw.
func (v *progressView) lines(s engine.Status) []string {
	routes := s.Routes
	if len(routes) > mostRoutes {
		routes = []status.Route{sumOf(routes)}
	}
	now := sighting{at: elapsed(s)}
	for i := range routes {
		now.bytes = append(now.bytes, settledBytes(&routes[i]))
	}
	for len(v.past) > 1 && elapsed(s)-v.past[1].at >= rateOver {
		v.past = v.past[1:]
	}
	v.past = append(v.past, now)
	var out []string
	for i := range routes {
		out = append(out, v.route(i, &routes[i], len(s.Routes)))
		out = append(out, workerLines(&routes[i])...)
	}
	return out
}

// sumOf adds up the figures of all routes that the progress shows, and returns the sums as one
// route. LeftBytes is negative if it is unknown for a route.
func sumOf(routes []status.Route) (all status.Route) {
	for i := range routes {
		r := &routes[i]
		all.ReadRecords += r.ReadRecords
		all.ReadBytes += r.ReadBytes
		all.Delivered += r.Delivered
		all.Dead += r.Dead
		all.Dropped += r.Dropped
		all.InFlight += r.InFlight
		all.Waiting += r.Waiting
		all.Parked += r.Parked
		all.Redelivered += r.Redelivered
		if all.LeftBytes >= 0 && r.LeftBytes >= 0 {
			all.LeftBytes += r.LeftBytes
		} else {
			all.LeftBytes = -1
		}
	}
	return all
}

// settledBytes estimates the bytes of a route that are settled (delivered, dead-lettered or
// dropped). The estimate is the number of bytes read, multiplied by the settled share of the
// records read.
func settledBytes(r *status.Route) int64 {
	if r.ReadRecords == 0 {
		return 0
	}
	return int64(float64(r.ReadBytes) * float64(r.Delivered+r.Dead+r.Dropped) / float64(r.ReadRecords))
}

func (v *progressView) route(i int, r *status.Route, routes int) string {
	name := r.Pipeline + "/" + r.Name
	if routes > mostRoutes {
		name = fmt.Sprintf("all %d routes", routes)
	}
	first, last := v.past[0], v.past[len(v.past)-1]
	span := last.at - first.at
	moved := last.bytes[i] - first.bytes[i]
	share, left := "", ""
	if total := r.ReadBytes + r.LeftBytes; r.LeftBytes >= 0 && total > 0 {
		done := float64(last.bytes[i]) / float64(total)
		share = fmt.Sprintf("%s %3.0f %%  ", bar(done, barWidth), min(done*100, 100))
		if moved > 0 && span > time.Second && last.bytes[i] < total {
			rest := time.Duration(float64(total-last.bytes[i]) / float64(moved) * float64(span))
			left = "  " + rest.Round(time.Second).String() + " left"
		}
	}
	line := fmt.Sprintf("%s  %s%s records  %s MB/s%s", name, share,
		thousands(r.Delivered+r.Dead+r.Dropped), rate(moved, span), left)
	if r.Dead > 0 {
		line += "  dead " + thousands(r.Dead)
	}
	if r.Health == "stopped" || r.Health == "restarting" {
		line += "  " + strings.ToUpper(r.Health)
	}
	return line
}

func workerLines(r *status.Route) []string {
	width := 0
	for i := range r.Workers[:min(len(r.Workers), mostWorkers)] {
		width = max(width, len([]rune(printable(r.Workers[i].Name))))
	}
	var out []string
	for i := range r.Workers {
		if i == mostWorkers {
			out = append(out, fmt.Sprintf("  and %d more workers", len(r.Workers)-i))
			break
		}
		w := &r.Workers[i]
		name := printable(w.Name)
		line := fmt.Sprintf("  %s%s  %-9s  window %5s  in flight %3d  %8s", name,
			strings.Repeat(" ", width-len([]rune(name))), w.State,
			strconv.FormatFloat(w.Window, 'f', 1, 64), w.InFlight, seconds(w.RoundTrip))
		if w.State != "NORMAL" && w.Reason != "" {
			line += "  " + printable(w.Reason)
		}
		out = append(out, line)
	}
	return out
}
