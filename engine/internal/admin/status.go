//penstock:pure

package admin

import (
	"fmt"
	"slices"
	"time"
)

// Status is a picture of a running process, as /api/v1/status and `penstock status --json` give it. Names of JSON fields are stable;
// fields may be added. Counts are of this run.
type Status struct {
	Version int      `json:"version"` // of this form: 1
	PID     int      `json:"pid"`
	Program string   `json:"program"` // version
	Seconds float64  `json:"seconds"` // since the run began
	Ready   bool     `json:"ready"`
	Why     []string `json:"problems"` // why it is not ready, in words
	Free    int64    `json:"state_free_bytes"`
	Routes  []Route  `json:"routes"`
	Sources []Source `json:"sources"`        // one a pipeline
	Tree    *Child   `json:"tree,omitempty"` // what is kept running
}

// Source is the source of a pipeline, with what it counts of itself for all routes at once; what it counts for one is that route's.
type Source struct {
	Pipeline string           `json:"pipeline"`
	Name     string           `json:"source"` // the component
	Counters map[string]int64 `json:"counters"`
}

// Child is one thing that is kept running: the process, a pipeline, a route, a goroutine, a child process; or a worker of a
// route, whose state is its flow's.
type Child struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`                  // idle, waiting, running, stopping, stuck, done; of a worker as in Worker
	Restarts uint64    `json:"restarts"`               // how often it was started again
	Reason   string    `json:"last_reason,omitempty"`  // what it ended of the last time; of a worker, why it is in its state
	Since    time.Time `json:"since,omitzero"`         // its last start, or its end when it does not run
	Seconds  float64   `json:"seconds"`                // since Since
	Next     float64   `json:"next_seconds,omitempty"` // waiting: until it starts, at least
	Children []Child   `json:"children,omitempty"`
}

// Find returns the child at a path of names beneath c, and nil where there is none, also for a nil c.
func (c *Child) Find(path ...string) *Child {
	for _, name := range path {
		if c == nil {
			return nil
		}
		i := slices.IndexFunc(c.Children, func(below Child) bool { return below.Name == name })
		if i < 0 {
			return nil
		}
		c = &c.Children[i]
	}
	return c
}

// Route is one route. ReadRecords is always the sum of Delivered, Dead, Dropped, InFlight and Waiting.
type Route struct {
	Pipeline   string   `json:"pipeline"`
	Name       string   `json:"route"`
	Source     string   `json:"source"`
	Processors []string `json:"processors"`
	Sink       string   `json:"sink"`
	Health     string   `json:"health"`               // running, draining, finished, stopped, restarting
	Error      string   `json:"error,omitempty"`      // why it stopped, or has failed the last time
	Starts     int      `json:"starts"`               // of this run; more than one: it has failed and was started again
	Again      float64  `json:"restart_seconds"`      // restarting: until it starts
	Window     string   `json:"window"`               // algorithm of the workers' windows, once the route has opened its sink
	LastFault  string   `json:"last_fault,omitempty"` // the latest failure of a worker, in words

	ReadRecords      int64 `json:"read_records"`
	ReadBytes        int64 `json:"read_bytes"`
	Delivered        int64 `json:"delivered"`
	DeliveredBytes   int64 `json:"delivered_bytes"`
	Dead             int64 `json:"dead"`
	Dropped          int64 `json:"dropped"`
	InFlight         int64 `json:"in_flight"`
	Waiting          int64 `json:"waiting"`
	Attempts         int64 `json:"attempts"`     // deliveries of batches that were begun
	Redelivered      int64 `json:"redelivered"`  // those that were not a batch's first
	Duplicates       int64 `json:"duplicates"`   // answers that delivered a batch a second time
	ReplayBytes      int64 `json:"replay_bytes"` // what a kill right now would repeat at most
	ReplayBoundBytes int64 `json:"replay_bound_bytes"`

	RedeliveryTokens  float64 `json:"redelivery_tokens"`  // redeliveries that the budget allows now; -1: there is none
	RedeliveryWaiting int     `json:"redelivery_waiting"` // batches that wait for it
	RedeliveryWaited  int64   `json:"redelivery_waited"`  // that had to, once for each attempt

	Hedged   int64 `json:"hedged"`   // redeliveries beside an attempt that took long
	Suspects int   `json:"suspects"` // batches kept apart: workers that take others fail them
	Poisoned int64 `json:"poisoned"` // batches refused since workers died of them, or failed them

	QuietSeconds        float64 `json:"quiet_seconds"`         // since something settled, while data waits; else 0
	WatermarkAgeSeconds float64 `json:"watermark_age_seconds"` // of the oldest watermark that data waits above; else 0

	Workers  []Worker         `json:"workers"`
	Counters map[string]int64 `json:"counters"` // of sink and processors

	SourceCounters map[string]int64 `json:"source_counters"` // of the source's reader for this route
}

// Worker is one worker of a route.
type Worker struct {
	Name          string  `json:"name"`
	State         string  `json:"state"` // NORMAL, SLOW, BUSY, PROBING, OPEN, THROTTLED
	Reason        string  `json:"reason,omitempty"`
	Gate          string  `json:"gate"`      // what binds now: one of gates; docs/operating.md has what each means
	Window        float64 `json:"window"`    // how much may be in flight, in the window's unit
	InFlight      int     `json:"in_flight"` // attempts
	RoundTrip     float64 `json:"round_trip_seconds"`
	Base          float64 `json:"base_round_trip_seconds"` // when drained
	Timeout       float64 `json:"timeout_seconds"`
	Delivered     uint64  `json:"delivered"` // attempts, as the following
	Failed        uint64  `json:"failed"`
	TimedOut      uint64  `json:"timed_out"`
	Throttled     uint64  `json:"throttled"`
	Late          uint64  `json:"late"`
	Misconfigured bool    `json:"misconfigured"`
}

const (
	// StallAfter is how long nothing may settle while data waits, until a process is not ready.
	StallAfter = time.Minute
	// LeastFree is how many bytes must be free where the state lies: less counts as a full disk.
	LeastFree = 16 << 20
)

// Judge fills Ready and Why.
func (s *Status) Judge() {
	s.Why = []string{}
	if s.Free >= 0 && s.Free < LeastFree {
		s.Why = append(s.Why, fmt.Sprintf("disk: %d bytes are free where the state lies", s.Free))
	}
	for i := range s.Routes {
		s.Why = append(s.Why, s.Routes[i].problems()...)
	}
	s.Ready = len(s.Why) == 0
}

func (r *Route) problems() (out []string) {
	name := r.Pipeline + "/" + r.Name
	switch r.Health {
	case "stopped":
		return []string{name + ": stopped: " + r.Error}
	case "restarting":
		return []string{fmt.Sprintf("%s: has failed and starts again in %v: %s", name, seconds(r.Again), r.Error)}
	case "draining":
		return []string{name + ": draining"}
	case "finished":
		return nil
	}
	for _, w := range r.Workers {
		if w.Misconfigured && r.InFlight+r.Waiting > 0 { // else nothing can tell whether it was mended
			out = append(out, fmt.Sprintf("%s: worker %s is misconfigured: %s", name, w.Name, r.LastFault))
		}
	}
	if quiet := time.Duration(r.QuietSeconds * float64(time.Second)); quiet >= StallAfter {
		out = append(out, fmt.Sprintf("%s: stall: nothing settled for %v while %d records wait", name,
			quiet.Round(time.Second), r.InFlight+r.Waiting))
	}
	return out
}

// seconds is a time for people.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond)
}
