//penstock:pure

package live

import (
	"time"

	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/status"
)

// Frame is the state of a running engine for a display, such as the dashboard. It adds rates and
// explanations to the status.
type Frame struct {
	At       int64          `json:"at"` // Unix time in milliseconds
	Program  string         `json:"program"`
	PID      int            `json:"pid"`
	Seconds  float64        `json:"seconds"` // since Run was called
	Ready    bool           `json:"ready"`
	Problems []string       `json:"problems"`
	Free     int64          `json:"state_free_bytes"`
	Reload   *status.Reload `json:"reload,omitempty"`
	Replay   *status.Replay `json:"replay,omitempty"`
	Routes   []Route        `json:"routes"`
}

// Route is a route in a Frame. Its rates are per second, smoothed over some frames.
type Route struct {
	Pipeline      string   `json:"pipeline"`
	Name          string   `json:"route"`
	Source        string   `json:"source"`
	Processors    []string `json:"processors"`
	Sink          string   `json:"sink"`
	Health        string   `json:"health"`
	Error         string   `json:"error,omitempty"`
	Held          string   `json:"held"` // reason that limits the route, in words
	ReadRate      float64  `json:"read_rate"`
	DeliveredRate float64  `json:"delivered_rate"`
	BytesRate     float64  `json:"bytes_rate"` // delivered source bytes
	Read          int64    `json:"read"`
	Delivered     int64    `json:"delivered"`
	Dead          int64    `json:"dead"`
	Dropped       int64    `json:"dropped"`
	InFlight      int64    `json:"in_flight"`
	Waiting       int64    `json:"waiting"`
	Parked        int64    `json:"parked,omitempty"` // parked in the sink's store
	Redelivered   int64    `json:"redelivered"`
	LagBytes      int64    `json:"lag_bytes"`     // unread source bytes; -1 if unknown
	DrainSeconds  float64  `json:"drain_seconds"` // until the backlog is delivered; -1 if unknown
	ReplayBytes   int64    `json:"replay_bytes"`
	ReplayBound   int64    `json:"replay_bound_bytes"`
	Quiet         float64  `json:"quiet_seconds"`
	Restart       float64  `json:"restart_seconds"`
	LastFault     string   `json:"last_fault,omitempty"`
	Worst         int      `json:"worst"` // index of the worker that needs attention; -1 if none
	Workers       []Worker `json:"workers"`
}

// Worker is a worker in a Frame.
type Worker struct {
	Name          string  `json:"name"`
	State         string  `json:"state"`
	Gate          string  `json:"gate"`
	Words         string  `json:"words"` // explanation of the gate
	Reason        string  `json:"reason,omitempty"`
	Window        float64 `json:"window"`
	InFlight      int     `json:"in_flight"`
	RoundTrip     float64 `json:"round_trip"` // in seconds, like Base and Timeout
	Base          float64 `json:"base"`
	Timeout       float64 `json:"timeout"`
	Rate          float64 `json:"rate"` // delivered batches per second
	Delivered     uint64  `json:"delivered"`
	Failed        uint64  `json:"failed"` // attempts that failed or timed out
	Throttled     uint64  `json:"throttled"`
	Misconfigured bool    `json:"misconfigured,omitempty"`
}

// smoothing is the weight of the last interval in a smoothed rate.
const smoothing = 0.5

// Framer makes frames. It computes the rates in a frame from successive values of the status. The
// zero value is ready to use. It is not safe for concurrent use.
type Framer struct {
	at     time.Time
	routes map[string]*routeRates
}

type routeRates struct {
	read, delivered, bytes rate
	workers                map[string]*rate
	seen                   bool
}

// rate is the smoothed rate at which a counter grows.
type rate struct {
	last  float64
	value float64
	ready bool // value is based on at least one interval
	known bool // last has been set
}

func (r *rate) update(count, seconds float64) float64 {
	switch {
	case !r.known || count < r.last || seconds <= 0: // the first value, or the counter was reset
		r.known = true
	case !r.ready:
		r.value, r.ready = (count-r.last)/seconds, true
	default:
		r.value += smoothing * ((count-r.last)/seconds - r.value)
	}
	r.last = count
	return r.value
}

// Next returns the frame for a status. now is the time at which the status was taken.
func (f *Framer) Next(s *status.Status, now time.Time) *Frame {
	elapsed := 0.0
	if !f.at.IsZero() {
		elapsed = now.Sub(f.at).Seconds()
	}
	f.at = now
	if f.routes == nil {
		f.routes = make(map[string]*routeRates)
	}
	out := &Frame{
		At: now.UnixMilli(), Program: s.Program, PID: s.PID, Seconds: s.Seconds, Ready: s.Ready,
		Problems: s.Why, Free: s.Free,
		Reload: s.Reload, Replay: s.Replay, Routes: make([]Route, 0, len(s.Routes)),
	}
	words := explain.FromStatus(s)
	for i := range s.Routes {
		key := s.Routes[i].Pipeline + "/" + s.Routes[i].Name
		rates := f.routes[key]
		if rates == nil {
			rates = &routeRates{workers: make(map[string]*rate)}
			f.routes[key] = rates
		}
		rates.seen = true
		out.Routes = append(out.Routes, rates.route(&s.Routes[i], words[i], elapsed))
	}
	for key, rates := range f.routes {
		if !rates.seen {
			delete(f.routes, key)
		}
		rates.seen = false
	}
	return out
}

func (rates *routeRates) route(r *status.Route, words *explain.Route, elapsed float64) Route {
	out := Route{
		Pipeline: r.Pipeline, Name: r.Name, Source: r.Source, Processors: r.Processors,
		Sink: r.Sink, Health: r.Health, Error: r.Error,
		Held: words.HeldWords(), Read: r.ReadRecords, Delivered: r.Delivered, Dead: r.Dead, Dropped: r.Dropped,
		InFlight: r.InFlight, Waiting: r.Waiting, Parked: r.Parked,
		Redelivered: r.Redelivered, LagBytes: r.LeftBytes,
		ReplayBytes: r.ReplayBytes, ReplayBound: r.ReplayBoundBytes, Quiet: r.QuietSeconds,
		Restart: r.Again, LastFault: r.LastFault,
		Worst: words.Worst(), Workers: make([]Worker, len(r.Workers)),
		ReadRate:      rates.read.update(float64(r.ReadRecords), elapsed),
		DeliveredRate: rates.delivered.update(float64(r.Delivered), elapsed),
		BytesRate:     rates.bytes.update(float64(r.DeliveredBytes), elapsed),
	}
	out.DrainSeconds = drainSeconds(r, out.BytesRate)
	if len(rates.workers) > 2*len(r.Workers)+16 { // most of these rates are of removed workers
		clear(rates.workers)
	}
	for i := range r.Workers {
		w := &r.Workers[i]
		speed := rates.workers[w.Name]
		if speed == nil {
			speed = new(rate)
			rates.workers[w.Name] = speed
		}
		out.Workers[i] = Worker{
			Name: w.Name, State: w.State, Gate: w.Gate, Words: words.GateWords(&words.Workers[i]), Reason: w.Reason,
			Window: w.Window, InFlight: w.InFlight, RoundTrip: w.RoundTrip, Base: w.Base, Timeout: w.Timeout,
			Rate: speed.update(float64(w.Delivered), elapsed), Delivered: w.Delivered, Failed: w.Failed + w.TimedOut,
			Throttled: w.Throttled, Misconfigured: w.Misconfigured,
		}
	}
	return out
}

// drainSeconds returns the time to deliver all unread, waiting and in-flight data at the given rate
// in bytes per second. It returns 0 if there is no such data. It returns -1 in two cases: the
// amount of unread data is unknown, or there is data and the rate is below 1.
func drainSeconds(r *status.Route, bytesRate float64) float64 {
	if r.LeftBytes < 0 {
		return -1
	}
	backlog := float64(r.LeftBytes)
	if r.ReadRecords > 0 {
		backlog += float64(r.InFlight+r.Waiting) * float64(r.ReadBytes) / float64(r.ReadRecords)
	}
	switch {
	case backlog < 1:
		return 0
	case bytesRate < 1:
		return -1
	}
	return backlog / bytesRate
}
