package child

import (
	"cmp"
	"errors"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Options are the options of a component that runs a program. The component's own options embed
// them.
type Options struct {
	Command []string      `yaml:"command" required:"true" doc:"[PROGRAM, ARG...], run without a shell"`
	Dir     string        `yaml:"dir" path:"true" doc:"working directory; default: the config's directory"`
	Env     []string      `yaml:"env" doc:"variables to pass; may list PENSTOCK_WORKER, and in the sink with lines PENSTOCK_BATCH"`
	Memory  stream.Size   `yaml:"memory" doc:"address space limit of each process; 0: no limit; Linux only"`
	CPU     time.Duration `yaml:"cpu" doc:"CPU time limit of each process; 0: no limit; Linux only"`
	Grace   time.Duration `yaml:"grace" doc:"time to exit at the end of input or by SIGTERM"`
}

// DefaultOptions returns the defaults of all options but the command, which has none.
func DefaultOptions() Options {
	return Options{Dir: ".", Env: []string{"PATH"}, Grace: defaultGrace}
}

// Validate returns a *stream.OptionError for each invalid option.
func (o *Options) Validate() error {
	var errs []error
	if len(o.Command) == 0 {
		errs = append(errs, stream.OptionErrorf("command", "is missing; write [PROGRAM, ARG...]"))
	}
	if o.Grace < 0 {
		errs = append(errs, stream.OptionErrorf("grace", "%v is below zero", o.Grace))
	}
	return errors.Join(append(errs, o.Spec("").Validate())...)
}

// Spec returns the Spec with which to run the program for a worker. If Env lists PENSTOCK_WORKER,
// the program gets the worker's name in this variable. The field Log of the Spec is not set.
func (o *Options) Spec(worker string) Spec {
	// A Grace of 0 means "kill at once" here, but 5s in Spec.
	grace := cmp.Or(o.Grace, -1)
	return Spec{
		Command: o.Command, Dir: o.Dir, Env: o.Env,
		Extra:  map[string]string{"PENSTOCK_WORKER": worker},
		Memory: o.Memory, CPU: o.CPU, Grace: grace, Attrs: []any{"worker", worker},
	}
}
