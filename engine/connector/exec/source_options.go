package exec

import (
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
)

// The values of the option that determines when to restart the command after its end.
const (
	Always    = "always"
	OnFailure = "on_failure" // after a status other than 0; status 0 ends the source
	Never     = "never"
)

// SourceOptions are the options of the source.
type SourceOptions struct {
	child.Options

	Format    string        `yaml:"format" enum:"lines,ndjson" doc:"format of the output"`
	Delimiter string        `yaml:"delimiter" enum:"newline,nul" doc:"for lines: delimiter after each record"`
	Every     time.Duration `yaml:"every" doc:"interval between the planned starts of two runs; 0: no schedule, see restart"`
	Timeout   time.Duration `yaml:"timeout" doc:"with every: time limit of one run; 0: no limit"`
	Restart   string        `yaml:"restart" enum:"always,on_failure,never" doc:"whether to restart the program after its end"`
	MaxRecord stream.Size   `yaml:"max_record" doc:"maximum size of a record; longer ones are split"`

	MaxWaiting stream.Size `yaml:"max_waiting" doc:"undelivered bytes at which reading pauses"`
}

// DefaultSourceOptions returns options for a command that runs continuously and writes lines.
func DefaultSourceOptions() *SourceOptions {
	return &SourceOptions{
		Options: child.DefaultOptions(), Format: Lines, Delimiter: intake.ByNewline,
		Restart: Always, MaxRecord: 1 << 20, MaxWaiting: intake.DefaultMaxBytes,
	}
}

// The limits of `every`.
const (
	minEvery = 100 * time.Millisecond
	maxEvery = 31 * 24 * time.Hour
)

// Validate returns an error for each invalid option.
func (o *SourceOptions) Validate() error {
	errs := []error{
		o.Options.Validate(), stream.CheckEnums(o),
		intake.CheckSizes("max_waiting", o.MaxRecord, o.MaxWaiting),
	}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, stream.OptionErrorf(key, format, args...))
	}
	if o.Format == NDJSON && o.Delimiter != intake.ByNewline {
		wrong("delimiter", "is %s, but ndjson has one object a line", o.Delimiter)
	}
	if o.Every != 0 && (o.Every < minEvery || o.Every > maxEvery) {
		wrong("every", "is %v, want %v to %v, or 0", o.Every, minEvery, maxEvery)
	}
	switch {
	case o.Timeout < 0:
		wrong("timeout", "is %v, want 0 or more", o.Timeout)
	case o.Timeout > 0 && o.Every == 0:
		wrong("timeout", "is %v, but only runs with every have a limit", o.Timeout)
	case o.Restart != Always && o.Every != 0:
		wrong("restart", "is %s, but with every the next run is the restart", o.Restart)
	}
	return errors.Join(errs...)
}

// ReadsObjects implements stream.ObjectOptions.
func (o *SourceOptions) ReadsObjects() bool { return o.Format == NDJSON }

// Shape implements stream.Shaper. The members of JSON objects become fields.
func (o *SourceOptions) Shape(in stream.Schema) (stream.Schema, error) {
	if o.Format == NDJSON {
		return stream.Schema{Open: true, OnError: in.OnError}, nil
	}
	return in, nil
}
