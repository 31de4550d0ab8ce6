//penstock:pure

// Package status describes the state of a running engine: engine.Status returns it, the admin
// address serves it as /api/v1/status, and `penstock status --json` prints it.
//
// The types hold data only. Names of JSON fields are stable; fields may be added.
package status

import (
	"fmt"
	"slices"
	"time"
)

// Status is a snapshot of a running engine's state. Its counts cover this run.
type Status struct {
	Version int `json:"version"` // of the JSON form: 1
	PID     int `json:"pid"`
	// Version of the program, "devel" for a build from a checkout.
	Program string   `json:"program"`
	Seconds float64  `json:"seconds"`          // since Run was called
	Ready   bool     `json:"ready"`            // no problem is known
	Why     []string `json:"problems"`         // why it is not ready, a sentence each
	Free    int64    `json:"state_free_bytes"` // on the disk of the state directory; -1 if unknown
	Routes  []Route  `json:"routes"`           // in the order of the config
	Sources []Source `json:"sources"`          // one for each pipeline
	Reload  *Reload  `json:"reload,omitempty"` // the last one; absent before the first
	// The last replay of dead letters at the admin address.
	Replay *Replay `json:"replay,omitempty"`
	Tree   *Child  `json:"tree,omitempty"` // all supervised parts

	Cluster *Cluster `json:"cluster,omitempty"` // absent without state.nats
}

// Cluster is the state of the cluster as known to this process.
type Cluster struct {
	Node   string  `json:"node"` // this process
	Bucket string  `json:"bucket"`
	Leases []Lease `json:"leases"` // one for each pipeline that the cluster shares, by name
}

// Lease identifies the process that runs a pipeline.
type Lease struct {
	Pipeline  string  `json:"pipeline"`
	Node      string  `json:"node"`           // the owner; empty if there is none or it is unknown
	Epoch     uint64  `json:"epoch"`          // of the owner; each takeover has a higher one
	Owned     bool    `json:"owned"`          // by this process
	Takeovers uint64  `json:"takeovers"`      // by this process since its start
	Silent    float64 `json:"silent_seconds"` // since the bucket responded; -1 if it never has
	Starved   uint64  `json:"starved"`        // timers of this process that were more than 2 s late

	// Failure is the error of the last request to the cluster's NATS bucket. It is empty if that
	// request succeeded.
	Failure string `json:"failure,omitempty"`
}

// Replay is a replay or discard of dead letters in the running process. Its counts are records.
type Replay struct {
	Pipeline  string    `json:"pipeline"`
	Route     string    `json:"route"`
	At        time.Time `json:"at"`        // its start
	Running   bool      `json:"running"`   // the route itself is paused meanwhile
	Discard   bool      `json:"discard"`   // the letters are settled without a delivery
	Letters   int64     `json:"letters"`   // read so far, without those settled before
	Delivered int64     `json:"delivered"` // like the following, of Letters
	Dead      int64     `json:"dead"`      // refused again: new letters
	Dropped   int64     `json:"dropped"`   // by a processor, or discarded
	Error     string    `json:"error,omitempty"`
}

// Reload is the result of the last reload of the configuration.
type Reload struct {
	Count   int       `json:"reloads"`         // since the start
	Failed  int       `json:"reloads_failed"`  // of them
	At      time.Time `json:"at"`              // start of the last one
	Seconds float64   `json:"seconds"`         // duration of the last one
	OK      bool      `json:"ok"`              // the running configuration is that of the file
	Error   string    `json:"error,omitempty"` // why not; the earlier configuration is running
}

// Source is the source of a pipeline with the counters it keeps for all routes together. Counters
// for one route are in Route.SourceCounters.
type Source struct {
	Pipeline string           `json:"pipeline"`
	Name     string           `json:"source"` // the component
	Counters map[string]int64 `json:"counters"`
	Held     *Held            `json:"held,omitempty"` // nil if the source never holds deleted data
}

// Held is deleted data that a source keeps until all routes have read it.
type Held struct {
	Files  int     `json:"files"`
	Bytes  int64   `json:"bytes"`
	Oldest string  `json:"oldest,omitempty"` // the file that has been kept longest
	Age    float64 `json:"oldest_seconds"`   // since the oldest file was deleted
	Route  string  `json:"route,omitempty"`  // a route that has not read the oldest
}

// Child is a node of the supervision tree: the process, a pipeline, a route, a goroutine, a child
// process, or a worker of a route. The State of a worker is that of flow control.
type Child struct {
	Name string `json:"name"`
	// Idle, waiting, running, stopping, stuck, done; of a worker: Worker.State.
	State    string `json:"state"`
	Restarts uint64 `json:"restarts"` // starts after the first
	// Reason of its last end; of a worker: Worker.Reason.
	Reason string `json:"last_reason,omitempty"`
	// Its last start, or its end if it is not running.
	Since   time.Time `json:"since,omitzero"`
	Seconds float64   `json:"seconds"` // time passed since Since
	// Minimum seconds until it starts; set while it is waiting.
	Next     float64 `json:"next_seconds,omitempty"`
	Children []Child `json:"children,omitempty"`
}

// Find returns the child at a path of names below c, or nil if there is none or c is nil.
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

// Route is one route. ReadRecords is always the sum of Delivered, Dead, Dropped, InFlight, Waiting
// and Parked.
type Route struct {
	Pipeline   string   `json:"pipeline"`
	Name       string   `json:"route"`
	Source     string   `json:"source"`
	Processors []string `json:"processors"`
	Sink       string   `json:"sink"`
	// Health is running, draining, finished, stopped, restarting, or standby.
	Health string `json:"health"`
	Error  string `json:"error,omitempty"` // why it stopped, or failed last
	Starts int    `json:"starts"`          // more than one: it failed and was restarted
	// Seconds until it starts, while Health is restarting.
	Again float64 `json:"restart_seconds"`
	// Seconds since the start while sink and source are not open yet; otherwise 0.
	Opening float64 `json:"opening_seconds"`
	// Algorithm of the workers' windows; empty until the sink is open.
	Window    string `json:"window"`
	LastFault string `json:"last_fault,omitempty"` // latest failure of a worker

	// The following fields count source records, except those in bytes and in batches.
	ReadRecords    int64 `json:"read_records"`
	ReadBytes      int64 `json:"read_bytes"`
	Delivered      int64 `json:"delivered"`
	DeliveredBytes int64 `json:"delivered_bytes"`
	Dead           int64 `json:"dead"`
	Dropped        int64 `json:"dropped"`
	InFlight       int64 `json:"in_flight"`
	Waiting        int64 `json:"waiting"`
	Parked         int64 `json:"parked"`      // in the store of the sink
	Attempts       int64 `json:"attempts"`    // deliveries of batches that were started
	Redelivered    int64 `json:"redelivered"` // those that were not a batch's first
	// Responses that delivered a batch a second time.
	Duplicates int64 `json:"duplicates"`
	// Maximum source bytes that a kill at this moment would repeat.
	ReplayBytes      int64 `json:"replay_bytes"`
	ReplayBoundBytes int64 `json:"replay_bound_bytes"` // upper bound at any moment
	// Source bytes not yet read; -1 if the source does not know.
	LeftBytes int64 `json:"source_lag_bytes"`

	// Redeliveries that the retry budget allows now; -1 if it is unlimited.
	RedeliveryTokens  float64 `json:"redelivery_tokens"`
	RedeliveryWaiting int     `json:"redelivery_waiting"` // batches waiting for the retry budget
	RedeliveryWaited  int64   `json:"redelivery_waited"`  // attempts that had to wait for it

	Hedged   int64 `json:"hedged"`   // redeliveries in parallel with a slow attempt
	Suspects int   `json:"suspects"` // isolated batches: workers that accept others fail them
	Poisoned int64 `json:"poisoned"` // batches refused because workers died of them or failed them

	// Seconds since a record settled while data waits; otherwise 0.
	QuietSeconds float64 `json:"quiet_seconds"`
	// Age of the oldest watermark with data above it; else 0.
	WatermarkAgeSeconds float64 `json:"watermark_age_seconds"`

	// Settings of sink and processors that come from the environment, such as a proxy.
	Environment []string `json:"environment,omitempty"`

	Workers  []Worker         `json:"workers"`
	Counters map[string]int64 `json:"counters"` // of sink and processors

	// Counters of the source's reader for this route.
	SourceCounters map[string]int64 `json:"source_counters"`
}

// Worker is one worker of a route.
type Worker struct {
	Name   string `json:"name"`
	State  string `json:"state"` // NORMAL, SLOW, BUSY, PROBING, OPEN, THROTTLED
	Reason string `json:"reason,omitempty"`
	// The limit that is binding now; docs/operating.md explains each.
	Gate string `json:"gate"`
	// Limit on in-flight work, in the window's unit.
	Window    float64 `json:"window"`
	InFlight  int     `json:"in_flight"`               // attempts
	RoundTrip float64 `json:"round_trip_seconds"`      // smoothed
	Base      float64 `json:"base_round_trip_seconds"` // with nothing queued at the worker
	// Time after which a batch is also sent to another worker.
	Timeout       float64 `json:"timeout_seconds"`
	Delivered     uint64  `json:"delivered"` // attempts, like the following
	Failed        uint64  `json:"failed"`
	TimedOut      uint64  `json:"timed_out"`
	Throttled     uint64  `json:"throttled"`
	Late          uint64  `json:"late"`
	Misconfigured bool    `json:"misconfigured"`
}

const (
	// StallAfter is the time without a settled record after which a route with waiting data is not
	// ready.
	StallAfter = time.Minute
	// LeastFree is the number of bytes that must be free on the disk of the state directory. If
	// fewer are free, the disk counts as full.
	LeastFree = 16 << 20
)

// Judge sets Ready and Why from the other fields.
func (s *Status) Judge() {
	s.Why = []string{}
	if s.Free >= 0 && s.Free < LeastFree {
		s.Why = append(s.Why, fmt.Sprintf("disk: %d bytes are free on the file system of the "+
			"state directory", s.Free))
	}
	if s.Cluster != nil {
		s.Why = append(s.Why, s.Cluster.problems()...)
	}
	for i := range s.Routes {
		s.Why = append(s.Why, problems(&s.Routes[i])...)
	}
	s.Ready = len(s.Why) == 0
}

// SilentAfter is the time without a response of the cluster's NATS bucket after which the process
// is not ready.
const SilentAfter = 6 * time.Second

func (c *Cluster) problems() (out []string) {
	for _, l := range c.Leases {
		silent := time.Duration(l.Silent * float64(time.Second))
		if silent >= SilentAfter || l.Silent < 0 {
			why := fmt.Sprintf("cluster: the bucket %q does not respond; shared pipelines do "+
				"not run here", c.Bucket)
			if l.Failure != "" {
				why += ": " + l.Failure
			}
			return append(out, why)
		}
	}
	return out
}

func problems(r *Route) (out []string) {
	name := r.Pipeline + "/" + r.Name
	switch r.Health {
	case "stopped":
		return []string{name + ": stopped: " + r.Error}
	case "restarting":
		return []string{fmt.Sprintf("%s: has failed and restarts in %v: %s", name,
			seconds(r.Again), r.Error)}
	case "draining":
		return []string{name + ": draining"}
	case "finished", "standby":
		return nil
	}
	if opening := time.Duration(r.Opening * float64(time.Second)); opening >= StallAfter {
		out = append(out,
			fmt.Sprintf("%s: has not opened for %v; the log has the reason", name,
				opening.Round(time.Second)))
	}
	for _, w := range r.Workers {
		// Without data, nothing would show that the problem was fixed.
		if w.Misconfigured && r.InFlight+r.Waiting > 0 {
			out = append(out,
				fmt.Sprintf("%s: worker %s is misconfigured: %s", name, w.Name, r.LastFault))
		}
	}
	if quiet := time.Duration(r.QuietSeconds * float64(time.Second)); quiet >= StallAfter {
		out = append(out,
			fmt.Sprintf("%s: stall: nothing settled for %v while %d records wait", name,
				quiet.Round(time.Second), r.InFlight+r.Waiting))
	}
	return out
}

// seconds converts seconds to a rounded duration for display.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond)
}
