//penstock:pure

// Package status has the types of the status of a running engine. The method Status of
// engine.Engine returns a [Status], the admin address serves it as /api/v1/status, and
// `penstock status --json` prints it. The names of the JSON fields are stable. New fields may be
// added.
package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is the state of a running engine at one moment. Its counts are those of this run.
type Status struct {
	Version int `json:"version"` // version of the JSON form: 1
	PID     int `json:"pid"`
	// Version of the program. It is "devel" for a build from a checkout.
	Program string   `json:"program"`
	Seconds float64  `json:"seconds"`          // since Run was called
	Ready   bool     `json:"ready"`            // no problem is known
	Why     []string `json:"problems"`         // reasons why it is not ready, one sentence each
	Free    int64    `json:"state_free_bytes"` // on the disk of the state directory; -1: unknown
	Routes  []Route  `json:"routes"`           // in the order of the config
	Sources []Source `json:"sources"`          // one for each pipeline
	Reload  *Reload  `json:"reload,omitempty"` // the last reload; absent if there was none
	// The running or last replay of dead letters, or their last discard. Nil if there was none.
	Replay *Replay `json:"replay,omitempty"`
	Tree   *Child  `json:"tree,omitempty"` // all supervised parts

	Cluster *Cluster `json:"cluster,omitempty"` // absent without state.nats
}

// Cluster is the state of the cluster as known to this process.
type Cluster struct {
	Node   string  `json:"node"` // name of this process
	Bucket string  `json:"bucket"`
	Leases []Lease `json:"leases"` // one for each pipeline that the cluster shares, sorted by name
}

// Lease is the lease of a pipeline that a cluster shares. Its owner runs the pipeline.
type Lease struct {
	Pipeline  string  `json:"pipeline"`
	Node      string  `json:"node"`           // owner; empty if there is none or it is unknown
	Epoch     uint64  `json:"epoch"`          // epoch of the owner; each takeover has a higher one
	Owned     bool    `json:"owned"`          // this process is the owner
	Takeovers uint64  `json:"takeovers"`      // takeovers by this process since it started
	Silent    float64 `json:"silent_seconds"` // since the bucket responded; -1 if it never has
	Starved   uint64  `json:"starved"`        // timers of this process that were more than 2 s late

	// Failure is the error of the last request to the cluster's NATS bucket. It is empty if that
	// request succeeded.
	Failure string `json:"failure,omitempty"`
}

// Replay is the state of a replay or discard of dead letters in the running process. Its counts are
// records.
type Replay struct {
	Pipeline  string    `json:"pipeline"`
	Route     string    `json:"route"`
	At        time.Time `json:"at"`               // start time
	Running   bool      `json:"running"`          // the route itself is paused meanwhile
	Discard   bool      `json:"discard"`          // the letters are settled without a delivery
	Letters   int64     `json:"letters"`          // read so far, without settled ones
	Delivered int64     `json:"delivered"`        // part of Letters, like the three counts below
	Dead      int64     `json:"dead"`             // refused again, so they became new letters
	Dropped   int64     `json:"dropped"`          // by a processor, or discarded
	Parked    int64     `json:"parked,omitempty"` // stored by the sink, which delivers them later
	Error     string    `json:"error,omitempty"`
}

// Reload is the result of the last reload of the configuration.
type Reload struct {
	Count   int       `json:"reloads"`         // since the start of the process
	Failed  int       `json:"reloads_failed"`  // part of Count
	At      time.Time `json:"at"`              // start time of the last reload
	Seconds float64   `json:"seconds"`         // duration of the last reload
	OK      bool      `json:"ok"`              // the last reload succeeded
	Error   string    `json:"error,omitempty"` // of the last reload; "" if it succeeded
}

// Source is the state of the source of a pipeline. Its counters are those of the source as a whole.
// The counters of its readers, one for each route, are in Route.SourceCounters.
type Source struct {
	Pipeline string           `json:"pipeline"`
	Name     string           `json:"source"` // name of the component
	Counters map[string]int64 `json:"counters"`
	Held     *Held            `json:"held,omitempty"` // nil if the source never keeps deleted data
	// Error is the reason why the source gets no data now and retries. It is empty if the source
	// works or does not report its failures.
	Error string `json:"error,omitempty"`
}

// Held describes deleted data that a source keeps until all routes have read it.
type Held struct {
	Files  int     `json:"files"`
	Bytes  int64   `json:"bytes"`
	Oldest string  `json:"oldest,omitempty"` // the file that was deleted first
	Age    float64 `json:"oldest_seconds"`   // since the oldest file was deleted
	Route  string  `json:"route,omitempty"`  // a route that has not read the oldest file completely
}

// Child is a node of the supervision tree: the process, a pipeline, a route, a goroutine, a child
// process, or a worker of a route.
type Child struct {
	Name string `json:"name"`
	// State is idle, waiting, running, stopping, stuck or done. For a worker it is Worker.State.
	State    string `json:"state"`
	Restarts uint64 `json:"restarts"` // starts after the first
	// Reason is the error with which the node last ended. For a worker it is Worker.Reason.
	Reason string `json:"last_reason,omitempty"`
	// Since is the time of the node's last start, or of its end if the node is not running.
	Since   time.Time `json:"since,omitzero"`
	Seconds float64   `json:"seconds"` // time passed since Since
	// Next is the minimum time until the node starts, in seconds. It is set if State is waiting.
	Next     float64 `json:"next_seconds,omitempty"`
	Children []Child `json:"children,omitempty"`
}

// Find returns the node that is reached from c by a path of names. It returns nil if there is none
// or c is nil.
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

// Route is the state of one route. ReadRecords always equals the sum of Delivered, Dead, Dropped,
// InFlight, Waiting and Parked.
type Route struct {
	Pipeline   string   `json:"pipeline"`
	Name       string   `json:"route"`
	Source     string   `json:"source"`
	Processors []string `json:"processors"`
	Sink       string   `json:"sink"`
	// Health is running, draining, finished, stopped, restarting, or standby.
	Health string `json:"health"`
	Error  string `json:"error,omitempty"` // error with which it stopped or last failed
	Starts int    `json:"starts"`          // above 1 if it failed and was restarted
	// Again is the time until the restart in seconds. It is 0 unless Health is restarting.
	Again float64 `json:"restart_seconds"`
	// Opening is the time in seconds for which the route has been opening its sink and source, or 0
	// if it is not opening them.
	Opening float64 `json:"opening_seconds"`
	// Window is the algorithm of the workers' windows. It is empty until the sink is open.
	Window string `json:"window"`
	// WindowOptions are the options of this algorithm, as in a trace (docs/formats/trace.md).
	WindowOptions json.RawMessage `json:"window_options,omitempty"`
	LastFault     string          `json:"last_fault,omitempty"` // latest one that is not over

	// The counts below are source records, unless the name or comment says otherwise.
	ReadRecords    int64 `json:"read_records"`
	ReadBytes      int64 `json:"read_bytes"`
	Delivered      int64 `json:"delivered"`
	DeliveredBytes int64 `json:"delivered_bytes"`
	Dead           int64 `json:"dead"`
	Dropped        int64 `json:"dropped"`
	InFlight       int64 `json:"in_flight"`
	Waiting        int64 `json:"waiting"`
	Parked         int64 `json:"parked"`      // records that the sink has parked in its store
	Attempts       int64 `json:"attempts"`    // attempts to deliver a batch
	Redelivered    int64 `json:"redelivered"` // attempts that were not the first one of a batch
	// Duplicates is the number of responses to a batch that was already delivered by an earlier
	// response.
	Duplicates int64 `json:"duplicates"`
	// ReplayBytes is the maximum number of source bytes that a kill at this moment would repeat.
	ReplayBytes      int64 `json:"replay_bytes"`
	ReplayBoundBytes int64 `json:"replay_bound_bytes"` // upper bound of ReplayBytes
	// LeftBytes is the number of source bytes that are not read yet. It is -1 if the source does
	// not know.
	LeftBytes int64 `json:"source_lag_bytes"`

	// RedeliveryTokens is the number of redeliveries that the retry budget allows now. It is -1 if
	// there is no limit.
	RedeliveryTokens  float64 `json:"redelivery_tokens"`
	RedeliveryWaiting int     `json:"redelivery_waiting"` // batches that wait for the budget
	RedeliveryWaited  int64   `json:"redelivery_waited"`  // attempts that had to wait for it

	Hedged   int64 `json:"hedged"`   // redeliveries parallel to a slow attempt
	Suspects int   `json:"suspects"` // batches that fail at workers which accept others
	Poisoned int64 `json:"poisoned"` // batches refused as the cause of failures

	// QuietSeconds is the time in seconds for which the route has had unsettled records, and has
	// settled none (delivered, dead or dropped). It is 0 if no record is unsettled.
	QuietSeconds float64 `json:"quiet_seconds"`
	// WatermarkAgeSeconds is the longest time for which a partition has had unsettled data, and its
	// watermark has not advanced. A watermark is the position up to which all data is settled. Zero
	// means that no partition has unsettled data.
	WatermarkAgeSeconds float64 `json:"watermark_age_seconds"`

	// Environment lists the settings that the sink and the processors take from the environment,
	// such as a proxy.
	Environment []string `json:"environment,omitempty"`

	Workers  []Worker         `json:"workers"`
	Counters map[string]int64 `json:"counters"` // counters of sink and processors

	// Counters of the source's reader for this route.
	SourceCounters map[string]int64 `json:"source_counters"`
}

// Worker is one worker of a route.
type Worker struct {
	Name   string `json:"name"`
	State  string `json:"state"` // UNKNOWN, NORMAL, SLOW, BUSY, PROBING, OPEN, THROTTLED
	Reason string `json:"reason,omitempty"`
	// Gate is the limit that stops further sends to the worker now, or "none". See
	// docs/operating.md.
	Gate string `json:"gate"`
	// Window is the limit of in-flight work in the unit of the window, such as batches.
	Window    float64 `json:"window"`
	InFlight  int     `json:"in_flight"`               // attempts
	RoundTrip float64 `json:"round_trip_seconds"`      // smoothed
	Base      float64 `json:"base_round_trip_seconds"` // with nothing queued at the worker
	// Timeout is the time in seconds after which an attempt to deliver a batch of average size is
	// overdue. The batch is then also sent to another worker, unless it must keep its order among
	// batches of the same key. Zero means that there is no timeout.
	Timeout       float64 `json:"timeout_seconds"`
	Delivered     uint64  `json:"delivered"` // number of attempts, like the counts below
	Failed        uint64  `json:"failed"`
	TimedOut      uint64  `json:"timed_out"`
	Throttled     uint64  `json:"throttled"`
	Late          uint64  `json:"late"` // responses after the time Timeout
	Misconfigured bool    `json:"misconfigured"`
	LastFault     string  `json:"last_fault,omitempty"` // since its last delivery
	// Rate limits the attempts per second after a 429 response. Zero means no limit.
	Rate float64 `json:"rate_per_second,omitempty"`
}

const (
	// StallAfter is a time without progress. The process is not ready if, for this time, a route
	// has been opening its sink and source, or has had unsettled records and has settled none.
	StallAfter = time.Minute
	// LeastFree is the number of free bytes on the disk of the state directory below which the disk
	// counts as full.
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
	for _, src := range s.Sources {
		if src.Error != "" {
			s.Why = append(s.Why, fmt.Sprintf("%s: source %s: %s", src.Pipeline, src.Name, src.Error))
		}
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
		if r.Again == 0 {
			return []string{name + ": has failed and is restarting: " + r.Error}
		}
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
		// A misconfigured worker keeps this state until its next attempt, even if the problem was
		// fixed. Without data there is no next attempt. So such a worker makes the process unready
		// only if data waits.
		if w.Misconfigured && r.InFlight+r.Waiting > 0 {
			out = append(out,
				fmt.Sprintf("%s: worker %s is misconfigured: %s", name, w.Name,
					strings.TrimPrefix(cmp.Or(w.LastFault, r.LastFault), "misconfigured: ")))
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
