package exec

import (
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// The values of the option protocol.
const (
	// a process for each batch, with the records on its standard input; if the process has read all
	// of them, status 0 means delivered
	Lines  = "lines"
	NDJSON = "ndjson" // a line for each batch and each answer; docs/formats/exec-ndjson.md
	Storm  = "storm"  // Storm's multilang protocol; the child is a bolt
)

// The formats of records on standard input, for the protocol lines.
const (
	Raw  = "raw"  // unchanged, each with a line end
	JSON = "json" // a JSON object per line: the fields of a parsed record, else {"message":"..."}
)

// The limits of options.
const (
	maxWorkers  = 256
	maxInFlight = 1000 // batches
	maxPending  = 10_000

	usualInFlight = 1
	usualPending  = 100 // Storm's topology.shellbolt.max.pending
	usualTimeout  = 30 * time.Second
)

// Options are the options of the sink. The option `flow.abandon` bounds the time in which a child
// must answer. After this time, the child is killed.
type Options struct {
	child.Options

	Workers  int               `yaml:"workers" doc:"number of processes, each a worker"`
	Protocol string            `yaml:"protocol" enum:"lines,ndjson,storm" doc:"protocol on stdin and stdout of a child"`
	Format   string            `yaml:"format" enum:"raw,json" doc:"for lines: send records as read, or as one JSON object per line"`
	InFlight int               `yaml:"in_flight" doc:"for ndjson: in-flight batches of each child"`
	Pending  int               `yaml:"pending" doc:"for storm: in-flight tuples of each child"`
	Timeout  time.Duration     `yaml:"timeout" doc:"for storm: silence before a child is killed"`
	Conf     map[string]string `yaml:"conf" doc:"for storm: topology configuration in handshakes"`
}

// DefaultOptions returns the defaults.
func DefaultOptions() *Options {
	return &Options{
		Options: child.DefaultOptions(), Workers: 1, Protocol: Lines, Format: Raw,
		InFlight: usualInFlight, Pending: usualPending, Timeout: usualTimeout,
	}
}

// Validate returns an error for each invalid option.
func (o *Options) Validate() error {
	errs := []error{stream.CheckEnums(o)}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, stream.OptionErrorf(key, format, args...))
	}
	for _, n := range []struct {
		key            string
		n, most, usual int
		option, of     string // of: the protocol that the option is for; "" means all
	}{
		{"workers", o.Workers, maxWorkers, 0, "processes", ""},
		{"in_flight", o.InFlight, maxInFlight, usualInFlight, "batches", NDJSON},
		{"pending", o.Pending, maxPending, usualPending, "tuples", Storm},
	} {
		switch {
		case n.n < 1 || n.n > n.most:
			wrong(n.key, "%d %s; want 1 to %d", n.n, n.option, n.most)
		case n.of != "" && n.of != o.Protocol && n.n != n.usual:
			wrong(n.key, "needs protocol %s, but this is %s", n.of, o.Protocol)
		}
	}
	if o.Format == JSON && o.Protocol != Lines {
		wrong("format", "needs protocol lines; %s has a fixed format", o.Protocol)
	}
	if len(o.Conf) > 0 && o.Protocol != Storm {
		wrong("conf", "needs protocol storm, but this is %s", o.Protocol)
	}
	if o.Timeout != usualTimeout && o.Protocol != Storm {
		wrong("timeout", "needs protocol storm, but this is %s; flow.abandon limits an attempt",
			o.Protocol)
	} else if o.Timeout < minTimeout {
		wrong("timeout", "%v is too short for one heartbeat a second; want %v or more", o.Timeout,
			minTimeout)
	}
	return errors.Join(append(errs, o.Options.Validate())...)
}

// minTimeout is the minimum of the option timeout. With the protocol storm, Penstock sends each
// child a heartbeat every second, and kills a child that sends nothing for timeout. With two
// seconds, a child has at least one second to answer a heartbeat.
const minTimeout = 2 * time.Second
