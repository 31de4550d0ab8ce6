// Package config reads penstock's YAML into what pipelines are assembled from.
//
// It holds the tree and its defaults, and refuses what is wrong before anything starts (no file made, no port
// opened), with file:line:column, an excerpt and the nearest valid name. It assembles nothing and opens
// nothing but the config itself and the files that ${file:...} names.
package config

import (
	"time"

	"github.com/penstock-io/penstock"
)

// File is a whole config.
type File struct {
	Path      string // as given; relative paths inside were resolved against its folder
	State     string // directory of checkpoints, buffers and dead letters
	Admin     Admin  // where metrics, health and status are served
	Pipelines []Pipeline
}

// Pipeline is one source with its routes.
type Pipeline struct {
	Name   string
	Source Use
	Routes []Route // at least one; the short form has one route named "main"
	Where  Place
}

// Route is one processors-to-sink path out of a source.
type Route struct {
	Name        string
	Processors  []Use
	Sink        Use
	Batch       Batch
	Flow        Flow
	Retry       Retry
	DeadLetters DeadLetters
	Checkpoint  Checkpoint
	Memory      penstock.Size // budget in bytes of all batches of the route: `memory`, default 32MiB
	Drain       time.Duration // how long a stop waits for what is in flight: `drain`, default 30s
	Where       Place
}

// Use is a component with its decoded options.
type Use struct {
	Component penstock.Component
	Options   any
	Where     Place
}

// Place is where something stands in a config.
type Place struct {
	File         string
	Line, Column int
}

// Batch is `batch:`.
type Batch struct {
	Bytes   penstock.Size `yaml:"bytes" doc:"a batch of a file ends at the first record end at or after a multiple of this"`
	Records int           `yaml:"records" doc:"records in a batch, at most"`
	Linger  time.Duration `yaml:"linger" doc:"how long a batch that has been begun waits for more"`
}

// Flow is `flow:`.
type Flow struct {
	Window    string        `yaml:"window" enum:"auto,queue,linear,aimd,credit,rate,fixed" doc:"limit of batches in flight to each worker"`
	Size      int           `yaml:"size" doc:"of a fixed window, in batches"`
	Initial   int           `yaml:"initial" doc:"of a window that adapts, in batches"`
	Max       int           `yaml:"max" doc:"of a window that adapts, in batches"`
	Threshold string        `yaml:"threshold" doc:"round trip beyond which a worker is SLOW: auto or a duration"`
	Step      string        `yaml:"step" enum:"per_round,per_ack" doc:"how often a linear window takes a step"`
	Dispatch  string        `yaml:"dispatch" enum:"least_completion,round_robin,hash,least_in_flight,two_choices,peak_ewma" doc:"who"`
	Timeout   string        `yaml:"timeout" doc:"round trip after which a batch goes to another worker: auto or a duration"`
	Abandon   time.Duration `yaml:"abandon" doc:"hard end of a delivery"`

	TieBand       float64 `yaml:"tie_band" doc:"of least_completion: chance decides among workers that take this share longer"`
	Redeliver     float64 `yaml:"redeliver" doc:"batches that may be sent again in vain, for each that is delivered; 0: without bound"`
	RedeliverRate float64 `yaml:"redeliver_rate" doc:"and so many a second, whatever is delivered"`
	Hedge         bool    `yaml:"hedge" doc:"a second copy, to another worker, of the batch that holds the checkpoint back: of 2 % at most"`
	Poison        int     `yaml:"poison" doc:"workers that may die of a batch, or fail it alone, before it is to blame; 0: any number"`
	Poisoned      string  `yaml:"poisoned" enum:"keep,dead_letter" doc:"what becomes of one that workers fail, and do not die of"`

	Order string `yaml:"order" enum:"none,partition" doc:"default: the sink's own (partition for a file)"`

	Trace    string        `yaml:"trace" path:"true" alone:"true" doc:"file for what the flow's machine is told and does"`
	TraceMax penstock.Size `yaml:"trace_max" doc:"bytes of the trace, at most; then it ends, and delivery goes on"`
}

// Retry is `retry:`.
type Retry struct {
	Backoff string        `yaml:"backoff" enum:"exponential,fixed" doc:"how the wait of a batch grows"`
	Base    time.Duration `yaml:"base" doc:"first wait"`
	Max     time.Duration `yaml:"max" doc:"longest wait"`
	Jitter  string        `yaml:"jitter" enum:"full,none" doc:"how each wait is drawn"`
}

// DeadLetters is `dead_letters:`.
type DeadLetters struct {
	Dir string        `yaml:"dir" path:"true" doc:"folder of the dead letters; default: dead beneath state"`
	Max penstock.Size `yaml:"max" doc:"bytes at most; full: the route stops, nothing is dropped"`
}

// Checkpoint is `checkpoint:`.
type Checkpoint struct {
	Replay penstock.Size `yaml:"replay" doc:"what a kill repeats at most: bytes in flight, or settled and not yet written"`
	Sync   time.Duration `yaml:"sync" doc:"how often what was written is made durable against power loss"`
}
