//penstock:pure

package explain

import (
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/engine/status"
)

// FromStatus returns the routes in the status of a running process, in the same order.
func FromStatus(s *status.Status) []*Route {
	out := make([]*Route, 0, len(s.Routes))
	for i := range s.Routes {
		from := &s.Routes[i]
		r := &Route{
			Name: from.Pipeline + "/" + from.Name, Replay: from.ReplayBoundBytes,
			Waiting: from.Waiting, LastFault: from.LastFault,
			Workers: make([]Worker, 0, len(from.Workers)),
		}
		// An older process reports no options, and its algorithm counts as unknown.
		r.Window, _ = trace.ReadWindow(from.Window, from.WindowOptions)
		for k := range from.Workers {
			r.Workers = append(r.Workers, Worker{Worker: from.Workers[k]})
		}
		out = append(out, r)
	}
	return out
}

// severity is the rank of a worker's state. The worker with the highest rank needs attention first.
var severity = map[string]int{"SLOW": 1, "BUSY": 2, "THROTTLED": 3, "OPEN": 4}

// Severity returns how urgently a worker needs attention. Zero means that it does not need any.
func Severity(state, gate string, inFlight int, misconfigured bool) int {
	switch {
	case misconfigured:
		return len(severity) + 1
	case IdleSlow(state, gate, inFlight):
		return 0
	}
	return severity[state]
}

// IdleSlow reports whether a worker has no data now, but was slow or busy when it last had data.
// The state then describes that earlier moment, and no gate limits the worker now.
func IdleSlow(state, gate string, inFlight int) bool {
	return (state == "SLOW" || state == "BUSY") && gate == "none" && inFlight == 0
}

// Worst returns the index of the worker that needs attention first:
//
//   - a misconfigured worker, if there is one,
//   - otherwise the worker in the worst state, and of several such workers the one with the longest
//     round trip,
//   - if all states are good, the active worker with the longest round trip, if this is at least
//     twice the shortest round trip of any worker.
//
// If there is no such worker either, Worst returns -1.
func (r *Route) Worst() int {
	worst, rank := -1, 0
	shortest, longest := -1, -1
	for i := range r.Workers {
		w := &r.Workers[i]
		own := Severity(w.State, w.Gate, w.InFlight, w.Misconfigured)
		if own > rank || own == rank && rank > 0 && w.RoundTrip > r.Workers[worst].RoundTrip {
			worst, rank = i, own
		}
		if w.RoundTrip <= 0 {
			continue
		}
		if shortest < 0 || w.RoundTrip < r.Workers[shortest].RoundTrip {
			shortest = i
		}
		idle := w.Gate == "none" && w.InFlight == 0
		if !idle && (longest < 0 || w.RoundTrip > r.Workers[longest].RoundTrip) {
			longest = i
		}
	}
	if rank == 0 && longest >= 0 &&
		r.Workers[longest].RoundTrip >= 2*r.Workers[shortest].RoundTrip {
		return longest
	}
	return worst
}
