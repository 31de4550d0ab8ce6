//penstock:pure

package flowsim

import (
	"math"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// Series has the values of a run over time for a plot, with one point for each interval Step.
type Series struct {
	Step      time.Duration
	Windows   [][]float64 // by lane and point: window of the first sender
	InFlight  []float64   // cost of the in-flight batches of all senders
	RoundTrip []float64   // mean of the deliveries since the previous point in ms; NaN if none
	Goodput   []float64   // cost per second since the previous point
	Optimum   []float64   // cost per second

	step  time.Duration
	sum   time.Duration
	count int
	done  float64
}

// seriesPoints is the number of points of a plot.
const seriesPoints = 600

// seriesStepMin is the minimum step of a series. It keeps the plot of a short run readable.
const seriesStepMin = time.Millisecond

func (r *Series) begin(s *scenario.Scenario) {
	r.step = max(s.Duration/seriesPoints, seriesStepMin)
	r.Step = r.step
	r.Windows = make([][]float64, len(s.Workers))
}

func (r *Series) answered(rtt time.Duration) {
	r.sum += rtt
	r.count++
}

func (r *Series) observe(x *sim) {
	for _, l := range x.senders[0].m.Status().Lanes {
		if int(l.Lane) < len(r.Windows) {
			r.Windows[l.Lane] = append(r.Windows[l.Lane], l.Window)
		}
	}
	r.InFlight = append(r.InFlight, x.fig.inFlight)
	rtt := math.NaN()
	if r.count > 0 {
		rtt = millis(r.sum) / float64(r.count)
	}
	r.RoundTrip = append(r.RoundTrip, rtt)
	r.Goodput = append(r.Goodput, (x.fig.settledCost-r.done)/r.step.Seconds())
	r.Optimum = append(r.Optimum, x.s.Capacity(x.events.Now()-r.step/2))
	r.sum, r.count, r.done = 0, 0, x.fig.settledCost
}
