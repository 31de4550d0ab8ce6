package exec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// The values of the option protocol.
const (
	Lines = "lines" // a line for each record, a line for each answer
	// the child reads one line for each batch, and answers with one line for all of the batch's
	// records (see docs/exec.md)
	NDJSON = "ndjson"
	Storm  = "storm" // Storm's multilang protocol; the child is a bolt
)

// The formats of records on standard input, for the protocol lines.
const (
	Raw  = "raw"  // the text of the record
	JSON = "json" // a JSON object: the fields of a parsed record, else {"message":"..."}
)

// The limits of options.
const (
	maxPending = 10_000
	minTimeout = 2 * time.Second // twice the interval of heartbeats

	defaultPending = 100

	defaultQuiet = 10 * time.Millisecond
	maxQuiet     = time.Second
)

// Options are the options of the processor.
type Options struct {
	child.Options

	Protocol string            `yaml:"protocol" enum:"lines,ndjson,storm" doc:"protocol on stdin and stdout of a child"`
	Format   string            `yaml:"format" enum:"raw,json" doc:"for lines: send a record's text, or a JSON object of its fields"`
	Pending  int               `yaml:"pending" doc:"for storm: in-flight tuples of each child"`
	Fields   []string          `yaml:"fields" doc:"for storm: names of the values in a tuple; default: its single text is the record"`
	Quiet    time.Duration     `yaml:"quiet" doc:"for lines: minimum silence after which a child's response is complete"`
	Timeout  time.Duration     `yaml:"timeout" doc:"silence after which a child is killed; without storm, only while it has records"`
	Conf     map[string]string `yaml:"conf" doc:"for storm: topology configuration in handshakes"`
}

// DefaultOptions returns the defaults.
func DefaultOptions() *Options {
	return &Options{
		Options: child.DefaultOptions(), Protocol: Lines, Format: Raw,
		Pending: defaultPending, Quiet: defaultQuiet, Timeout: 30 * time.Second,
	}
}

// Validate returns an error for each invalid option.
func (o *Options) Validate() error {
	errs := []error{stream.CheckEnums(o)}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, stream.OptionErrorf(key, format, args...))
	}
	switch {
	case o.Pending < 1 || o.Pending > maxPending:
		wrong("pending", "%d tuples; want 1 to %d", o.Pending, maxPending)
	case o.Pending != defaultPending && o.Protocol != Storm:
		wrong("pending", "needs protocol storm, but this is %s", o.Protocol)
	}
	if len(o.Fields) > 0 && o.Protocol != Storm {
		wrong("fields", "needs protocol storm, but this is %s", o.Protocol)
	}
	if len(o.Conf) > 0 && o.Protocol != Storm {
		wrong("conf", "needs protocol storm, but this is %s", o.Protocol)
	}
	for i, name := range o.Fields {
		if name == "" || slices.Contains(o.Fields[:i], name) {
			wrong(fmt.Sprintf("fields[%d]", i), "%q is empty or given twice", name)
		}
	}
	if o.Format == JSON && o.Protocol != Lines {
		wrong("format", "needs protocol lines; %s has a fixed format", o.Protocol)
	}
	switch {
	case o.Quiet < 0 || o.Quiet > maxQuiet:
		wrong("quiet", "%v; want 0s to %v", o.Quiet, maxQuiet)
	case o.Quiet != defaultQuiet && o.Protocol != Lines:
		wrong("quiet", "needs protocol lines; responses of %s name their batch",
			o.Protocol)
	}
	if o.Timeout < minTimeout {
		wrong("timeout", "%v is too short for one heartbeat a second; want %v or more", o.Timeout,
			minTimeout)
	}
	return errors.Join(append(errs, o.Options.Validate())...)
}
