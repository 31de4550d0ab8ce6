//penstock:pure

package live

import (
	"math"
	"time"
)

// Limits of a History. It covers an hour. Its memory is enough for about 1,000 workers (6 MB).
const (
	HistoryStep   = 10 * time.Second
	historyPoints = 360
	maxSeries     = 1100 // routes and workers; further ones have no history
)

// History has time series of the last hour. The zero value is empty. It is not safe for concurrent
// use.
type History struct {
	at     [historyPoints]int64 // Unix seconds
	count  int                  // number of points that were added so far
	series map[string]*series
}

// series has the values of a route or worker by name, one value for each point. seen is the number
// of the last point at which values were added.
type series struct {
	names  []string
	values [][historyPoints]float32
	seen   int
}

var (
	routeSeries  = []string{"read", "delivered", "in_flight", "waiting", "lag_bytes", "dead"}
	workerSeries = []string{"rate", "window", "in_flight", "round_trip"}
)

// Add adds a frame as a new point.
func (h *History) Add(f *Frame) {
	if h.series == nil {
		h.series = make(map[string]*series)
	}
	h.at[h.count%historyPoints] = f.At / 1000
	h.count++
	for i := range f.Routes {
		r := &f.Routes[i]
		key := r.Pipeline + "/" + r.Name
		h.put(key, routeSeries, r.ReadRate, r.DeliveredRate, float64(r.InFlight),
			float64(r.Waiting), float64(r.LagBytes), float64(r.Dead))
		for k := range r.Workers {
			w := &r.Workers[k]
			h.put(key+" "+w.Name, workerSeries, w.Rate, w.Window, float64(w.InFlight), w.RoundTrip)
		}
	}
	for key, s := range h.series {
		if h.count-s.seen >= historyPoints {
			delete(h.series, key)
		}
	}
}

func (h *History) put(key string, names []string, values ...float64) {
	s := h.series[key]
	if s == nil {
		if len(h.series) >= maxSeries {
			return
		}
		s = &series{names: names, values: make([][historyPoints]float32, len(names)), seen: h.count - 1}
		for i := range s.values {
			for k := range s.values[i] {
				s.values[i][k] = float32(math.NaN())
			}
		}
		h.series[key] = s
	}
	for i, v := range values {
		for missed := max(s.seen, h.count-historyPoints); missed < h.count-1; missed++ {
			s.values[i][missed%historyPoints] = float32(math.NaN())
		}
		s.values[i][(h.count-1)%historyPoints] = float32(v)
	}
	s.seen = h.count
}

// Series is the history of a route or worker, with the oldest point first. A nil value means
// unknown.
type Series struct {
	Step   float64               `json:"step_seconds"`
	At     []int64               `json:"at"` // Unix seconds
	Values map[string][]*float32 `json:"values"`
}

// Of returns the history of a route, "pipeline/route". If worker is not "", it returns the history
// of this worker. The result is empty if there is no such route or worker.
func (h *History) Of(route, worker string) Series {
	key := route
	if worker != "" {
		key += " " + worker
	}
	out := Series{Step: HistoryStep.Seconds(), At: []int64{}, Values: map[string][]*float32{}}
	s := h.series[key]
	if s == nil {
		return out
	}
	from := max(0, h.count-historyPoints)
	for n := from; n < h.count; n++ {
		out.At = append(out.At, h.at[n%historyPoints])
	}
	for i, name := range s.names {
		values := make([]*float32, 0, h.count-from)
		for n := from; n < h.count; n++ {
			v := s.values[i][n%historyPoints]
			if n >= s.seen || math.IsNaN(float64(v)) {
				values = append(values, nil)
			} else {
				values = append(values, &v)
			}
		}
		out.Values[name] = values
	}
	return out
}
