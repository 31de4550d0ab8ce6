package exec

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// The protocols.
const (
	Lines  = "lines"  // one process a batch, records on its standard input, status 0 is delivered
	NDJSON = "ndjson" // a batch a line in, an answer a line out; docs/formats/exec-ndjson.md
	Storm  = "storm"  // Storm's multilang protocol: a bolt
)

// How records stand on the input of a program that speaks lines.
const (
	Raw  = "raw"  // as they were read, each with a line end
	JSON = "json" // a JSON object a line: the fields of a parsed record, else {"message":"..."}
)

// The limits of options.
const (
	maxWorkers  = 256
	maxInFlight = 1000 // batches
	maxPending  = 10_000

	usualInFlight = 1
	usualPending  = 100 // topology.shellbolt.max.pending
)

// Options of the sink. How long an answer may take is `flow.abandon`: then the child is killed.
type Options struct {
	child.Options

	Workers  int               `yaml:"workers" doc:"processes at once, each a worker"`
	Protocol string            `yaml:"protocol" enum:"lines,ndjson,storm" doc:"what is said to it, and what it answers"`
	Format   string            `yaml:"format" enum:"raw,json" doc:"of lines: records as they were read, or a JSON object a line"`
	InFlight int               `yaml:"in_flight" doc:"of ndjson: batches that one child may have at once"`
	Pending  int               `yaml:"pending" doc:"of storm: tuples that one child may have at once"`
	Timeout  time.Duration     `yaml:"timeout" doc:"of storm: how long a child may give no sign of life before it is killed"`
	Conf     map[string]string `yaml:"conf" doc:"of storm: what the handshake gives as the topology's configuration"`
}

// DefaultOptions are those of a config that names a command only.
func DefaultOptions() *Options {
	return &Options{
		Options: child.DefaultOptions(), Workers: 1, Protocol: Lines, Format: Raw, InFlight: usualInFlight, Pending: usualPending,
		Timeout: 30 * time.Second,
	}
}

// Validate implements the optional part of options.
func (o *Options) Validate() error {
	errs := []error{stream.CheckEnums(o)}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)})
	}
	for _, n := range []struct {
		key            string
		n, most, usual int
		what, of       string // of: the protocol that it belongs to; "": all
	}{
		{"workers", o.Workers, maxWorkers, 0, "processes", ""},
		{"in_flight", o.InFlight, maxInFlight, usualInFlight, "batches", NDJSON},
		{"pending", o.Pending, maxPending, usualPending, "tuples", Storm},
	} {
		switch {
		case n.n < 1 || n.n > n.most:
			wrong(n.key, "%d %s; want 1 to %d", n.n, n.what, n.most)
		case n.of != "" && n.of != o.Protocol && n.n != n.usual:
			wrong(n.key, "belongs to protocol %s, and this is %s", n.of, o.Protocol)
		}
	}
	if o.Format == JSON && o.Protocol != Lines {
		wrong("format", "belongs to protocol lines; %s has a form of its own", o.Protocol)
	}
	if len(o.Conf) > 0 && o.Protocol != Storm {
		wrong("conf", "belongs to protocol storm, and this is %s", o.Protocol)
	}
	if o.Timeout < minTimeout {
		wrong("timeout", "%v is too short for a sign of life a second; want %v or more", o.Timeout, minTimeout)
	}
	return errors.Join(append(errs, o.Options.Validate())...)
}

// minTimeout is twice the time between two heartbeats.
const minTimeout = 2 * time.Second
