//penstock:pure

package flowsim

import (
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// Timeline draws a run over time, with four panels: the windows of the first sender, the in-flight
// cost, the round trip and the goodput. Events are shaded.
func Timeline(s *scenario.Scenario, spec *Spec, seed uint64, r *Series,
	f *scenario.Figures) plot.Figure {
	times := make([]float64, len(r.InFlight))
	for i := range times {
		times[i] = float64(i+1) * r.Step.Seconds()
	}
	panel := func(title string, lines ...plot.Series) plot.Panel {
		for i := range lines {
			lines[i].X = times
		}
		return plot.Panel{Title: title, X: plot.Axis{Label: "seconds", Time: true}, Series: lines,
			Spans: eventSpans(s)}
	}
	return plot.Figure{
		Title: fmt.Sprintf("%s: %s, seed %d", s.Name, spec.Title(), seed), Subtitle: s.About,
		Columns: 2,
		Panels: []plot.Panel{
			panel("Windows of the first sender", windowLines(s, r)...),
			panel(fmt.Sprintf("In flight (cost): %.3g times the bandwidth-delay product",
				f[scenario.Bloat]), plot.Series{Y: r.InFlight}),
			panel(fmt.Sprintf("Round trip (ms): mean %.4g", f[scenario.RTTMean]),
				plot.Series{Y: r.RoundTrip}),
			panel(fmt.Sprintf("Goodput (cost per second): %.3f of the optimum",
				f[scenario.Goodput]),
				plot.Series{Name: "delivered", Y: r.Goodput},
				plot.Series{Name: "workers can", Y: r.Optimum, Color: 1, Dashed: true}),
		},
	}
}

// windowLines returns one line for each worker: its window over time. Workers with the same rate
// have the same color. The first worker of each rate is labeled with the rate. A link (a receiver
// with a delay that depends on its load) has no rate, and so no label.
func windowLines(s *scenario.Scenario, r *Series) (lines []plot.Series) {
	var rates []float64
	for i, windows := range r.Windows {
		rate := s.Workers[i].Rate
		line := plot.Series{Y: windows, Color: slices.Index(rates, rate)}
		if line.Color < 0 {
			line.Color = len(rates)
			rates = append(rates, rate)
			if s.Link == nil {
				line.Name = fmt.Sprintf("worker of %g/s", rate)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// eventSpans returns the times of the scenario's events, with their descriptions.
func eventSpans(s *scenario.Scenario) (spans []plot.Span) {
	for i := range s.Events {
		e := &s.Events[i]
		span := plot.Span{From: e.At.Seconds(), To: e.Until(s.Duration).Seconds(), Label: title(e)}
		if e.Kind == scenario.Restart {
			span.To = span.From
		}
		spans = append(spans, span)
	}
	if b := s.Load.Burst; b.Batches > 0 {
		at := b.At.Seconds()
		spans = append(spans, plot.Span{From: at, To: at,
			Label: fmt.Sprintf("burst of %d", b.Batches)})
	}
	for i, join := range s.Joins {
		if at := join.Seconds(); at > 0 {
			spans = append(spans, plot.Span{From: at, To: at,
				Label: fmt.Sprintf("sender %d joins", i)})
		}
	}
	return spans
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
