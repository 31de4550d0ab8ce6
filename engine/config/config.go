// Package config has the configuration of an engine and reads it from YAML.
//
// [Load] reads a config from a file or directory, and [Parse] from memory. Both check the whole
// config before anything starts. An error contains file, line, column and, if possible, an excerpt
// and a hint. A config can also be built in Go: begin each route with [DefaultRoute] and call
// [Config.Validate]. [Config.Plan] returns the YAML of a config with its defaults. [JSONSchema]
// returns a schema for editors.
//
// The package reads the config and the files that it names with ${file:...}. The components' checks
// of their options may read other files, such as certificates. No files are created.
package config

import (
	"iter"
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Config is a whole configuration. Load and Parse return it with all defaults set and all paths
// resolved. In Go, set State before you add routes, and pass it to DefaultRoute, which derives a
// route's directory for dead letters from it. A later change of State does not change this
// directory.
type Config struct {
	Path string // file or directory, as given to Load or Parse; empty if built in Go
	// State is the path of the directory of checkpoints and, by default, of dead letters. The path
	// must not be "". The directory is created if missing.
	State     string
	Cluster   Cluster    // processes that share these pipelines; the zero value means no cluster
	Admin     Admin      // address of metrics, health and status; the zero value serves none
	Telemetry Telemetry  // receiver of metrics and traces; the zero value pushes none
	Pipelines []Pipeline // at least one, with distinct names
	Notices   Errors     // advice about a valid config, such as former names of keys
	Tests     []Test     // tests of processors; `penstock test` runs them, an engine ignores them
}

// Routes iterates over the routes of all pipelines, in the order of the config.
func (c *Config) Routes() iter.Seq2[*Pipeline, *Route] {
	return func(yield func(*Pipeline, *Route) bool) {
		for i := range c.Pipelines {
			p := &c.Pipelines[i]
			for j := range p.Routes {
				if !yield(p, &p.Routes[j]) {
					return
				}
			}
		}
	}
}

// Pipeline is a source and the routes that read it. A checkpoint belongs to the names of a pipeline
// and a route. So a renamed pipeline or route starts without a checkpoint.
type Pipeline struct {
	Name   string // 1 to 64 of a-z, 0-9, - and _
	Source Use
	// Routes has at least one route. Their names are distinct. If the config has no key `routes`,
	// the only route is named MainRoute.
	Routes []Route
	Where  Place // place of the name; zero if built in Go
}

// Route is the path from a source to a sink. Each route has its own progress in the source. The
// zero values of its options are not the defaults, so begin with [DefaultRoute].
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
	// Drain is the maximum duration of a drain. After this time, in-flight batches are abandoned.
	// Default 30s.
	Drain time.Duration
	Where Place // place of the name; zero if built in Go
}

// FromEnvironment describes the settings that the sink and the processors take from the
// environment, such as a proxy. It returns one text for each setting. See [stream.EnvironmentUser].
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

// Use is a component (a source, processor or sink) with its options.
type Use struct {
	Component stream.Component
	Options   any   // result of Component.Options; nil for a component without options
	Where     Place // place of the name; zero if built in Go
}

// ends returns the members of u if it is a composite sink such as failover. Otherwise it returns u
// itself.
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
	Line, Column int // from 1; the column counts characters; line 0 means the whole file
}

// Batch limits the size of a batch. Its key in a config is `batch`. A batch ends at the first limit
// that it reaches.
type Batch struct {
	// Bytes limits the bytes of a batch, 1B to 1GiB. A batch of a file usually ends at the first
	// record end at or after a multiple of Bytes (package lines lists the exceptions). Example:
	// with 256KiB, the first batch ends with the record that reaches offset 256 KiB, and the next
	// batch with the record that reaches 512 KiB. Default: the sink's preference, as far as the
	// route's Memory and Checkpoint.Replay allow it, else 256KiB.
	Bytes stream.Size `yaml:"bytes" doc:"a batch of a file usually ends at the first record end at or after a multiple of this"`
	// Records limits the records of a batch, 1 to 16777216. Default: the sink's preference, else
	// 5000.
	Records int `yaml:"records" doc:"maximum number of records in a batch"`
	// Linger is how long an incomplete batch waits for more records: 0 to 1h. Default 200ms.
	Linger time.Duration `yaml:"linger" doc:"how long an incomplete batch waits for more records"`
}

// Flow configures how batches are distributed to the workers of a sink: the key `flow`.
type Flow struct {
	// Window is the algorithm that limits the in-flight batches of each worker. Default auto.
	Window string `yaml:"window" names:"auto,@window" doc:"algorithm that limits in-flight batches"`
	// Size is the size of a fixed window in batches, 1 to 1000. It is required if Window is
	// "fixed", and not allowed otherwise.
	Size int `yaml:"size" doc:"size of a fixed window, in batches"`
	// Initial is the first size of an adaptive window, 1 to Max batches. Default 1.
	Initial int `yaml:"initial" doc:"initial size of an adaptive window, in batches"`
	// Max bounds an adaptive window, 1 to 1000 batches. Default 1000.
	Max int `yaml:"max" doc:"maximum size of an adaptive window, in batches"`
	// Threshold is a round-trip time: "auto" or a duration such as "200ms". If round trips are
	// longer, a linear window shrinks. With auto, the default, the queue at the worker decides.
	Threshold string `yaml:"threshold" doc:"round trip beyond which a worker is SLOW: auto or a duration"`
	// Step is how often a linear window may change. With per_ack, it may change after each
	// acknowledged batch. With per_round, it may change after as many acknowledged batches as the
	// window allows in flight. Default per_round.
	Step string `yaml:"step" enum:"per_round,per_ack" doc:"how often a linear window changes"`
	// Dispatch chooses the worker of the next batch. Default least_completion.
	Dispatch string `yaml:"dispatch" names:"@dispatch" doc:"how the worker of a batch is chosen"`
	// Timeout is the time that a batch may be in flight to one worker. After this time, the batch
	// is also sent to another worker, if one may take it. Timeout is "auto" or a duration shorter
	// than Abandon. Default auto.
	Timeout string `yaml:"timeout" doc:"round trip after which a batch goes to another worker: auto or a duration"`
	// Abandon is the maximum duration of one attempt. It must be positive. Default 1m.
	Abandon time.Duration `yaml:"abandon" doc:"time after which an attempt is abandoned"`

	// TieBand is used by the dispatch least_completion, which computes for each worker the expected
	// time until the batch is delivered. It chooses at random among the workers whose time exceeds
	// the shortest time by at most this share, 0 to 1. Example: with 0.1 and the times 100, 108 and
	// 150 ms, it chooses among the first two workers. Default 0: the worker with the shortest time.
	TieBand float64 `yaml:"tie_band" doc:"for least_completion: choose at random among workers slower than the best by at most this share"`
	// Redeliver limits retries: it is the number of failed retries that are allowed for each
	// delivered batch, 0 to 1. Example: 0.1 allows one failed retry for ten delivered batches. 0
	// means no limit. Default 0.1.
	Redeliver float64 `yaml:"redeliver" doc:"failed retries allowed for each delivered batch; 0: no limit"`
	// RedeliverRate is the number of failed retries per second that are allowed in addition to
	// those of Redeliver, 0.1 to 10000. Default 10.
	RedeliverRate float64 `yaml:"redeliver_rate" doc:"further failed retries allowed each second, regardless of deliveries"`
	// Limit limits the attempts of all workers together, and WorkerLimit those of each worker. In a
	// config, write the keys `limit` and `worker_limit` beside `sink`. The same keys below `flow`
	// are former names of them. Default: no limit.
	Limit       Limit `yaml:"limit" doc:"former name of the route's limit"`
	WorkerLimit Limit `yaml:"worker_limit" doc:"former name of the route's worker_limit"`
	// Hedge sends a second copy of the oldest batch to a faster worker if the first attempt takes
	// longer than nearly all other attempts at its worker. At most 2 % of the batches are sent
	// twice for this reason. Default false.
	Hedge bool `yaml:"hedge" doc:"send a second copy of the batch that holds back the checkpoint, for at most 2 % of batches"`
	// Shared detects a bottleneck that several workers share, such as one database. To detect it,
	// half of the workers are paused now and then. Workers that share a bottleneck get a common
	// window. Default false.
	Shared bool `yaml:"shared" doc:"pause workers to detect a shared bottleneck; workers that share one get a common window"`
	// Poison is the number of killed workers, up to 100, at which a batch counts as the cause of
	// their deaths, and is bisected. 0 means no limit; Poisoned then has no effect. Default 3.
	Poison int `yaml:"poison" doc:"workers that a batch may kill before it is bisected; 0: any number"`
	// Poisoned is the treatment of a batch that fails at workers that deliver other batches. With
	// keep, the batch is retried. With dead_letter, it is bisected, and the part that fails is
	// dead-lettered. Default keep.
	Poisoned string `yaml:"poisoned" enum:"keep,dead_letter" doc:"handling of a batch that fails at workers which deliver others"`

	// Order is "partition" or "none". With "partition", the batches of each partition are delivered
	// in order. Empty, the default, means the default order of the sink.
	Order string `yaml:"order" enum:"none,partition" doc:"partition: in read order; default: the sink's own (partition for a file)"`

	// Trace is the path of a file that records the decisions of flow control. Empty, the default,
	// means that they are not recorded.
	Trace string `yaml:"trace" path:"true" alone:"true" doc:"file that records the decisions of flow control"`
	// TraceMax is the maximum size of the trace, at least 64KiB. The trace ends at this size, and
	// delivery continues. Default 256MiB.
	TraceMax stream.Size `yaml:"trace_max" doc:"maximum size of the trace; delivery continues after it ends"`
}

// Retry configures how long a failed batch waits for its next attempt: the key `retry`.
type Retry struct {
	// Backoff is exponential, fixed, or a policy in the syntax of `penstock backoff`. The field
	// Base applies only to exponential and fixed. Max and Jitter apply only to exponential. Default
	// exponential.
	Backoff string `yaml:"backoff" doc:"how the wait of a batch grows: exponential, fixed, or a policy as penstock backoff takes it"`
	// Base is the first wait. It must be positive. Default 250ms.
	Base time.Duration `yaml:"base" doc:"first wait, before jitter"`
	// Max is the longest wait, at least Base. Default 30s, or Base if Backoff is fixed.
	Max time.Duration `yaml:"max" doc:"longest wait until a retry is due"`
	// Jitter is "full" or "none". With full, each wait is drawn at random between zero and the
	// computed wait. Default full.
	Jitter string `yaml:"jitter" enum:"full,none" doc:"full: each wait is drawn from zero to its length"`
	// Attempts is the number of failed attempts after which a batch is exhausted, and treated as
	// the option Exhausted states. A failure counts only if its worker delivers batches that it got
	// after the failed one (see ADR 17). Zero, the default, means no limit.
	Attempts int `yaml:"attempts" doc:"failures, at workers that deliver other batches, after which a batch is exhausted; 0: any number"`
	// MaxElapsed is the time after which a failing batch is exhausted. The time begins with the
	// first failure that counts for Attempts. It does not include the time in which no worker could
	// deliver. Zero, the default, means no limit.
	MaxElapsed time.Duration `yaml:"max_elapsed" doc:"time after which a failing batch is exhausted, not counting outages; 0: any time"`
	// Exhausted is the treatment of an exhausted batch. With dead_letter, the batch is
	// dead-lettered. With keep, the retries continue. Default keep.
	Exhausted string `yaml:"exhausted" enum:"keep,dead_letter" doc:"handling of an exhausted batch"`
	// Waiting limits the batches that wait for another attempt.
	Waiting Waiting `yaml:"waiting" doc:"limits of the batches that wait for another attempt; at a limit reading pauses"`
}

// Waiting limits the batches that wait for another attempt: the key `retry.waiting`.
type Waiting struct {
	// Bytes is the maximum size of all waiting batches together, in source bytes. Zero, the
	// default, means no such limit.
	Bytes stream.Size `yaml:"bytes" doc:"source bytes of these batches; 0: no limit"`
	// Records is the maximum number of records in all waiting batches together, 1 to 100000000.
	// Default 2000000.
	Records int `yaml:"records" doc:"records in these batches"`
}

// replacedByPolicy are the keys of Retry that have no effect if Backoff is a policy.
var replacedByPolicy = []string{"base", "max", "jitter"}

// DeadLetters configures the storage of refused records: the key `dead_letters`.
type DeadLetters struct {
	// Dir is the directory of the dead letters, created if missing. Default: "dead" in the state
	// directory.
	Dir string `yaml:"dir" path:"true" doc:"directory of the dead letters; default: dead in the state directory"`
	// Max is the maximum size of the route's dead letters in bytes, at least 1. If a letter does
	// not fit, the route fails, and is restarted until there is room. No record is dropped. Default
	// 1GiB.
	Max stream.Size `yaml:"max" doc:"maximum size; if a letter does not fit, the route fails until there is room"`
}

// Guard stops a route that turns too many records into dead letters: the key `guard`.
type Guard struct {
	// Share is the tolerated share of dead records, 0 to 1. Default 0.1.
	Share float64 `yaml:"share" doc:"tolerated share of dead-lettered records, 0 to 1"`
	// Records is the number of delivered and dead records in a run, 1 to 100000, after which the
	// guard begins to check Share. A run that begins without settled data is stopped earlier while
	// it has delivered nothing: by Records/10 dead records or, once 10 s have passed, by
	// Records/100. Example: with 1000, these are 100 and 10 dead records. Default 1000.
	Records int `yaml:"records" doc:"minimum number of records before the guard stops a route; fewer if none was delivered"`
	// Off disables the guard. Default false.
	Off bool `yaml:"off" doc:"disable the guard: a wrong pattern or token may dead-letter all input"`
}

// Checkpoint configures the saving of progress: the key `checkpoint`.
type Checkpoint struct {
	// Replay is the maximum number of source bytes that are delivered again after a kill. These are
	// the bytes in flight, and the bytes that were delivered after the progress was last written.
	// Replay must be at least Batch.Bytes. Default 32MiB.
	Replay stream.Size `yaml:"replay" doc:"maximum bytes that a kill repeats: in flight, or settled and not yet written"`
	// Sync is the interval at which the progress is synced, so that it survives a power loss. The
	// maximum is 1h. Default 1s.
	Sync time.Duration `yaml:"sync" doc:"how often progress is made durable against power loss"`
}
