//penstock:pure

package explain

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// Summary is the state of a route at a moment in its trace.
type Summary struct {
	Route
	About trace.About
	At    time.Duration // the moment, as the time since the start of the sender
	Names []string      // names of all workers in the trace, in the order of their lane numbers
	Over  bool          // the trace ends before the requested moment; At is its end
	Ended string        // why the trace ended; "" if unknown

	// The fields below are about the requested worker.
	One    int                      // index in Workers; -1 if it does not exist at that moment
	Steps  []Step                   // last changes of its window and state, at most MaxSteps
	Shares map[string]time.Duration // time for which each gate limited the worker
}

// Step is a change of a worker's window or state, at one moment of a trace.
type Step struct {
	At            time.Duration
	State, Reason string
	Window        float64
	Probes        int // probes and measurements since this step, without a change
}

// MaxSteps is the maximum number of steps in a Summary.
const MaxSteps = 12

// Forever is a moment after the end of every trace, for FromTrace.
const Forever = time.Duration(1<<63 - 1)

// FromTrace replays a trace up to a moment (at). If worker is not "", the summary contains the
// steps of this worker, which are the changes of its window or state.
func FromTrace(p *trace.Player, at time.Duration, worker string) (*Summary, error) {
	s := &Summary{
		Route: Route{Window: p.Config.Window, Replay: p.Config.Replay, Name: p.About.Route},
		About: p.About, One: -1, Shares: make(map[string]time.Duration),
	}
	w := watcher{summary: s, name: worker, lane: -1}
	for {
		next, ok := p.Peek()
		if ok && next.Now > at {
			break
		}
		more, err := p.Next()
		if err != nil {
			return nil, err
		}
		if !more {
			s.Over, s.Ended = true, p.Ended
			break
		}
		w.observe(p)
	}
	s.At = at
	if s.Over {
		s.At = w.now
	}
	s.picture(p)
	s.One = slices.IndexFunc(s.Workers, func(w Worker) bool {
		return worker != "" && w.Name == worker
	})
	return s, nil
}

// nameOf returns the name of a worker. If the trace does not contain the name, it returns the lane
// number.
func nameOf(p *trace.Player, lane int32) string {
	if name := p.Names[lane]; name != "" {
		return name
	}
	return strconv.Itoa(int(lane))
}

func (s *Summary) picture(p *trace.Player) {
	status := p.Machine.Status()
	s.Waiting = int64(status.Waiting)
	for i := range status.Lanes {
		l := &status.Lanes[i]
		w := Worker{Worker: WorkerStatus(nameOf(p, l.Lane), l)}
		if l.Until > 0 {
			w.Opens = max(0, l.Until-s.At).Seconds()
		}
		s.Workers = append(s.Workers, w)
	}
	for _, lane := range slices.Sorted(maps.Keys(p.Names)) {
		s.Names = append(s.Names, p.Names[lane])
	}
	for i := range s.Workers {
		if !slices.Contains(s.Names, s.Workers[i].Name) {
			s.Names = append(s.Names, s.Workers[i].Name)
		}
	}
}

// watcher records the steps of one worker.
type watcher struct {
	summary *Summary
	name    string
	lane    int32 // -1 until the worker appears in the trace
	now     time.Duration
	gate    string
}

func (w *watcher) observe(p *trace.Player) {
	now := p.Event.Now
	passed := now - w.now
	w.now = now
	if w.name == "" {
		return
	}
	if w.gate != "" {
		w.summary.Shares[w.gate] += passed
		w.gate = ""
	}
	if p.Event.Kind == control.LaneUp && nameOf(p, p.Event.Lane) == w.name {
		w.lane = p.Event.Lane
	}
	if w.lane < 0 {
		return
	}
	l, there := p.Machine.Lane(w.lane)
	if !there {
		w.lane = -1
		return
	}
	w.gate = l.Gate
	w.step(Step{At: now, State: l.State.String(), Reason: l.Reason, Window: l.Window})
}

// step adds a step if the window or the state has changed. If both are the same after a probe as
// before it, the probe is only counted. Otherwise an hour of probes would fill the list of MaxSteps
// steps, and all other steps would be lost.
func (w *watcher) step(x Step) {
	steps := w.summary.Steps
	n := len(steps)
	same := func(i int) bool {
		return i >= 0 && steps[i].Window == x.Window && steps[i].State == x.State
	}
	switch {
	case same(n - 1):
		return
	case n > 0 && steps[n-1].State == window.Probing.String() && same(n-2):
		steps = steps[:n-1]
		steps[n-2].Probes++
	default:
		if n == MaxSteps {
			steps = slices.Delete(steps, 0, 1)
		}
		steps = append(steps, x)
	}
	w.summary.Steps = steps
}
