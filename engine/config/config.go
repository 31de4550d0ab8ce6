// Package config holds the configuration of an engine and reads it from YAML.
//
// [Load] and [Parse] decode a file before anything starts. Errors contain file, line, column, an
// excerpt and a hint. A config may also be built in Go: begin each route with [DefaultRoute] and
// call [Config.Validate]. [Config.Plan] prints a config with all defaults. [JSONSchema] returns
// a schema for editors. The package opens only the config and the files named by ${file:...},
// and creates no files.
package config

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Config is a whole configuration. Load and Parse return it with all defaults set and all paths
// resolved. Changing State afterwards does not move the dead letters, because each route stores its
// own directory for them.
type Config struct {
	Path string // file it was read from, as given to Load or Parse; empty if built in Go
	// State is the directory of checkpoints and dead letters, created if missing. It must not be
	// empty.
	State     string
	Cluster   Cluster    // processes that share these pipelines; the zero value means none
	Admin     Admin      // address of metrics, health and status; the zero value serves none
	Telemetry Telemetry  // receiver of metrics and traces; the zero value pushes none
	Pipelines []Pipeline // at least one, with distinct names
	Notices   Errors     // former names of keys that the file uses, in order of place
	Tests     []Test     // of processors; `penstock test` runs them, an engine ignores them
}

// Pipeline is a source and the routes that read it. Checkpoints and metrics are named after it:
// renaming a pipeline or route resets its checkpoint.
type Pipeline struct {
	Name   string // 1 to 64 of a-z, 0-9, - and _
	Source Use
	// Routes has at least one route; names are distinct. If the config has no key `routes`, the
	// only route is named MainRoute.
	Routes []Route
	Where  Place // of its name; zero if built in Go
}

// Route is the path from a source to a sink, with its own position in the source. The zero value of
// an option is not its default: begin with [DefaultRoute].
type Route struct {
	Name        string // 1 to 64 of a-z, 0-9, - and _
	Processors  []Use  // in the order in which they run; may be empty
	Sink        Use
	Batch       Batch
	Flow        Flow
	Retry       Retry
	DeadLetters DeadLetters
	Guard       Guard
	Checkpoint  Checkpoint
	Memory      stream.Size // bytes that all batches of the route may hold; default 32MiB
	// Drain bounds the duration of a drain. In-flight batches are abandoned after it. Default
	// 30s.
	Drain time.Duration
	Where Place // of its name; zero if built in Go
}

// FromEnvironment returns the settings of sink and processors that come from the environment, such
// as a proxy. See [stream.EnvironmentUser].
func (r *Route) FromEnvironment() []string {
	var all []string
	for _, u := range append(slices.Clone(r.Processors), r.Sink) {
		if n, ok := u.Options.(stream.EnvironmentUser); ok {
			for _, line := range n.FromEnvironment() {
				all = append(all, stream.MaskURLs(line))
			}
		}
	}
	return all
}

// Use is a component with its options.
type Use struct {
	Component stream.Component
	Options   any   // decoded result of Component.Options; nil for a component without options
	Where     Place // of its name; zero if built in Go
}

// ends returns the members of a composite sink such as failover, or u itself for any other
// component.
func (u Use) ends() []Use {
	composite, ok := u.Options.(stream.Composite)
	if !ok {
		return []Use{u}
	}
	var all []Use
	for _, m := range composite.Members() {
		all = append(all, Use{Component: m.Component, Options: m.Options, Where: u.Where})
	}
	return all
}

// Place is a position in a config file. The zero value means no position.
type Place struct {
	File         string
	Line, Column int // from 1, the column in characters; line 0 means the file as a whole
}

// Batch limits a batch: the key `batch`. A batch ends when it reaches the first of these limits.
type Batch struct {
	// Bytes limits the size of a batch, 1B to 1GiB. A batch of a file ends with the first record
	// that ends at or after a multiple of Bytes in the file. Default: the sink's preference, else
	// 256KiB.
	Bytes stream.Size `yaml:"bytes" doc:"a batch of a file ends at the first record end at or after a multiple of this"`
	// Records is 1 to 16777216. Default: the sink's preference, else 5000.
	Records int `yaml:"records" doc:"maximum number of records in a batch"`
	// Linger is how long an incomplete batch waits for more records: 0 to 1h. Default 200ms.
	Linger time.Duration `yaml:"linger" doc:"how long an incomplete batch waits for more records"`
}

// Flow configures the distribution of batches over the workers of a sink: the key `flow`.
type Flow struct {
	// Window is the algorithm that limits the in-flight batches of each worker. Default auto.
	Window string `yaml:"window" names:"auto,@window" doc:"limit of in-flight batches of each worker"`
	// Size is the limit of a fixed window, 1 to 1000 batches. It is set if and only if Window is
	// fixed.
	Size int `yaml:"size" doc:"size of a fixed window, in batches"`
	// Initial is the first size of an adaptive window, 1 to Max batches. Default 1.
	Initial int `yaml:"initial" doc:"initial size of an adaptive window, in batches"`
	// Max bounds an adaptive window, 1 to 1000 batches. Default 1000.
	Max int `yaml:"max" doc:"maximum of an adaptive window, in batches"`
	// Threshold is the round trip beyond which a linear window shrinks: "auto" or a duration such
	// as "200ms". Default auto.
	Threshold string `yaml:"threshold" doc:"round trip beyond which a worker is SLOW: auto or a duration"`
	// Step is how often a linear window changes. Default per_round.
	Step string `yaml:"step" enum:"per_round,per_ack" doc:"how often a linear window changes"`
	// Dispatch chooses the worker of the next batch. Default least_completion.
	Dispatch string `yaml:"dispatch" names:"@dispatch" doc:"how the worker of a batch is chosen"`
	// Timeout is the time without a response after which a batch is also sent to another worker:
	// "auto" or a duration shorter than Abandon. Default auto.
	Timeout string `yaml:"timeout" doc:"round trip after which a batch goes to another worker: auto or a duration"`
	// Abandon bounds one attempt. It must be positive; default 1m.
	Abandon time.Duration `yaml:"abandon" doc:"time after which an attempt is abandoned"`

	// TieBand makes least_completion choose at random among workers that are slower than the best
	// by at most this share, 0 to 1. Default 0: always the best.
	TieBand float64 `yaml:"tie_band" doc:"for least_completion: choose at random among workers slower than the best by at most this share"`
	// Redeliver is the number of repeated attempts allowed for each delivered batch, 0 to 1; 0
	// means no limit. Default 0.1.
	Redeliver float64 `yaml:"redeliver" doc:"repeated attempts allowed for each delivered batch; 0: no limit"`
	// RedeliverRate adds this many repeated attempts a second, 0.1 to 10000, regardless of
	// deliveries. Default 10.
	RedeliverRate float64 `yaml:"redeliver_rate" doc:"further repeated attempts allowed each second, regardless of deliveries"`
	// Limit bounds the attempts at all workers together, and WorkerLimit bounds the attempts at
	// each worker. Their usual keys are `limit` and `worker_limit` beside `sink`. Default: no
	// limit.
	Limit       Limit `yaml:"limit" doc:"former name of the route's limit"`
	WorkerLimit Limit `yaml:"worker_limit" doc:"former name of the route's worker_limit"`
	// Hedge sends a second copy of the oldest batch to an idle worker. This applies to at most 2
	// % of the batches. Default false.
	Hedge bool `yaml:"hedge" doc:"send a second copy of the batch that holds back the checkpoint, for at most 2 % of batches"`
	// Shared pauses half of the workers now and then, to find out whether they share a bottleneck
	// such as one database. If they do, one window limits all of them together. Default false.
	Shared bool `yaml:"shared" doc:"pause workers to detect a shared bottleneck; workers that share one get a common window"`
	// Poison is the number of workers, up to 100, that a batch may kill before it counts as the
	// cause of their failures. Failures at workers that deliver other batches count like kills. 0
	// means no limit. Default 3.
	Poison int `yaml:"poison" doc:"workers that a batch may kill before it is bisected; 0: any number"`
	// Poisoned determines what happens to a batch that fails at workers that deliver other
	// batches. Default keep: it is retried.
	Poisoned string `yaml:"poisoned" enum:"keep,dead_letter" doc:"handling of a batch that fails at workers which deliver others"`

	// Order is partition, to deliver each partition in order, or none. Empty, the default, means
	// the default order of the sink.
	Order string `yaml:"order" enum:"none,partition" doc:"default: the sink's own (partition for a file)"`

	// Trace is the file that records the decisions of flow control. Empty, the default, means that
	// nothing is recorded.
	Trace string `yaml:"trace" path:"true" alone:"true" doc:"file that records the decisions of flow control"`
	// TraceMax ends the trace after this many bytes, at least 64KiB; delivery continues. Default
	// 256MiB.
	TraceMax stream.Size `yaml:"trace_max" doc:"maximum size of the trace; delivery continues after it ends"`
}

// Retry configures the waits of undelivered batches for their next attempts: the key `retry`.
type Retry struct {
	// Backoff is exponential, fixed, or a policy in the syntax of `penstock backoff`. With
	// exponential and fixed, the next three fields apply. A policy replaces these fields. Default
	// exponential.
	Backoff string `yaml:"backoff" doc:"how the wait of a batch grows: exponential, fixed, or a policy as penstock backoff takes it"`
	// Base is the first wait. It must be positive; default 250ms.
	Base time.Duration `yaml:"base" doc:"first wait"`
	// Max is the longest wait, at least Base. Default 30s, or Base if Backoff is fixed.
	Max time.Duration `yaml:"max" doc:"longest wait"`
	// Jitter is full (each wait is drawn at random between zero and its full length) or none.
	// Default full.
	Jitter string `yaml:"jitter" enum:"full,none" doc:"full: each wait is drawn from zero to its length"`
	// Attempts is the number of failures after which a batch is exhausted. Only failures at workers
	// that deliver other batches count. Zero, the default, means no limit.
	Attempts int `yaml:"attempts" doc:"failures, at workers that deliver other batches, after which a batch is exhausted; 0: any number"`
	// MaxElapsed is the time from the first failure that counts for Attempts until the batch is
	// exhausted. Time in which no worker was open does not count. Zero, the default, means no
	// limit.
	MaxElapsed time.Duration `yaml:"max_elapsed" doc:"time after which a failing batch is exhausted, not counting outages; 0: any time"`
	// Exhausted is the fate of an exhausted batch: dead_letter, or keep to continue with retries.
	// Default keep.
	Exhausted string `yaml:"exhausted" enum:"keep,dead_letter" doc:"treatment of an exhausted batch"`
	// Waiting bounds the batches that wait for another attempt.
	Waiting Waiting `yaml:"waiting" doc:"limits of the batches that wait for another attempt; at a limit reading pauses"`
}

// Waiting bounds the batches that wait for another attempt: the key `retry.waiting`.
type Waiting struct {
	// Bytes limits the size of the waiting batches in source bytes, at least 1. Zero, the default,
	// means that only the keys memory and checkpoint.replay limit it.
	Bytes stream.Size `yaml:"bytes" doc:"source bytes of these batches; 0: limited only by memory and checkpoint.replay"`
	// Records limits the number of records in the waiting batches, 1 to 100000000. Default 2000000.
	Records int `yaml:"records" doc:"records in these batches"`
}

// replacedByPolicy are the keys of Retry that have no effect if Backoff is a policy.
var replacedByPolicy = []string{"base", "max", "jitter"}

// DeadLetters configures the storage of refused records: the key `dead_letters`.
type DeadLetters struct {
	// Dir is the directory of the dead letters, created if missing. Default: "dead" in the state
	// directory.
	Dir string `yaml:"dir" path:"true" doc:"directory of the dead letters; default: dead in the state directory"`
	// Max bounds the dead letters of the route in bytes, at least 1. At this size the route
	// stops, and no record is dropped. Default 1GiB.
	Max stream.Size `yaml:"max" doc:"maximum size; at it the route stops, and drops nothing"`
}

// Guard stops a route that turns too many records into dead letters: the key `guard`.
type Guard struct {
	// Share is the tolerated share of dead records, 0 to 1. Default 0.1.
	Share float64 `yaml:"share" doc:"tolerated share of dead records, 0 to 1"`
	// Records is the number of delivered and dead records, 1 to 100000, from which the guard checks
	// Share. As long as no record of the run has been delivered, a tenth of this number of dead
	// records stops the route. After 10 s a hundredth is enough. Default 1000.
	Records int `yaml:"records" doc:"minimum number of records before the guard stops a route; a tenth if none was delivered"`
	// Off disables the guard. Default false.
	Off bool `yaml:"off" doc:"disable the guard: a wrong pattern or token may dead-letter all input"`
}

// Checkpoint configures the saving of progress: the key `checkpoint`.
type Checkpoint struct {
	// Replay bounds the source bytes that a kill repeats: those in flight, plus those settled since
	// progress was last written. Replay must be at least Batch.Bytes. Default 32MiB.
	Replay stream.Size `yaml:"replay" doc:"maximum bytes that a kill repeats: in flight, or settled and not yet written"`
	// Sync is the interval at which progress is made durable against power loss, up to 1h. Default
	// 1s.
	Sync time.Duration `yaml:"sync" doc:"how often progress is made durable against power loss"`
}
