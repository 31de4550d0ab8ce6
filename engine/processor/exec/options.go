package exec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// The protocols.
const (
	Lines  = "lines"  // a line in, a line out
	NDJSON = "ndjson" // a batch a line in, its records in an answer a line out; docs/formats/exec-ndjson.md
	Storm  = "storm"  // Storm's multilang protocol: a bolt
)

// How records stand on the input of a program that speaks lines.
const (
	Raw  = "raw"  // their text
	JSON = "json" // a JSON object: the fields of a parsed record, else {"message":"..."}
)

// The limits of options.
const (
	maxPending = 10_000
	minTimeout = 2 * time.Second // twice the time between two heartbeats

	defaultQuiet = 10 * time.Millisecond
	maxQuiet     = time.Second
)

// Options of the processor.
type Options struct {
	child.Options

	Protocol string            `yaml:"protocol" enum:"lines,ndjson,storm" doc:"what is said to it, and what it answers"`
	Format   string            `yaml:"format" enum:"raw,json" doc:"of lines: a record's text, or a JSON object"`
	Pending  int               `yaml:"pending" doc:"of storm: tuples that one child may have at once"`
	Fields   []string          `yaml:"fields" doc:"of storm: names of the values of an emitted tuple; default: its one text is the record"`
	Quiet    time.Duration     `yaml:"quiet" doc:"of lines: how long a child must write nothing more before its answer counts"`
	Timeout  time.Duration     `yaml:"timeout" doc:"how long a child may say nothing while it has records, before it is killed"`
	Conf     map[string]string `yaml:"conf" doc:"of storm: what the handshake gives as the topology's configuration"`
}

// DefaultOptions are those of a config that names a command only.
func DefaultOptions() *Options {
	return &Options{
		Options: child.DefaultOptions(), Protocol: Lines, Format: Raw, Pending: 100, Quiet: defaultQuiet,
		Timeout: 30 * time.Second,
	}
}

// Validate implements the optional part of options.
func (o *Options) Validate() error {
	errs := []error{stream.CheckEnums(o)}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)})
	}
	if o.Pending < 1 || o.Pending > maxPending {
		wrong("pending", "%d tuples; want 1 to %d", o.Pending, maxPending)
	}
	if len(o.Fields) > 0 && o.Protocol != Storm {
		wrong("fields", "belongs to protocol storm, and this is %s", o.Protocol)
	}
	if len(o.Conf) > 0 && o.Protocol != Storm {
		wrong("conf", "belongs to protocol storm, and this is %s", o.Protocol)
	}
	for i, name := range o.Fields {
		if name == "" || slices.Contains(o.Fields[:i], name) {
			wrong(fmt.Sprintf("fields[%d]", i), "%q is empty, or named twice", name)
		}
	}
	if o.Format == JSON && o.Protocol != Lines {
		wrong("format", "belongs to protocol lines; %s has a form of its own", o.Protocol)
	}
	switch {
	case o.Quiet < 0 || o.Quiet > maxQuiet:
		wrong("quiet", "%v; want 0s to %v", o.Quiet, maxQuiet)
	case o.Quiet != defaultQuiet && o.Protocol != Lines:
		wrong("quiet", "belongs to protocol lines; the answers of %s name what they belong to", o.Protocol)
	}
	if o.Timeout < minTimeout {
		wrong("timeout", "%v is too short for a sign of life a second; want %v or more", o.Timeout, minTimeout)
	}
	return errors.Join(append(errs, o.Options.Validate())...)
}
