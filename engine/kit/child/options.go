package child

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Options are what the options of every component that runs a program have in common: they embed
// it.
type Options struct {
	Command []string      `yaml:"command" required:"true" doc:"[PROGRAM, ARG...]; no shell reads it"`
	Dir     string        `yaml:"dir" path:"true" doc:"the folder in which it runs; default: that of the config"`
	Env     []string      `yaml:"env" doc:"names of the variables that it gets; made: PENSTOCK_WORKER, for lines PENSTOCK_BATCH"`
	Memory  stream.Size   `yaml:"memory" doc:"address space of each process; 0: no limit; Linux"`
	CPU     time.Duration `yaml:"cpu" doc:"processor time of each process; 0: no limit; Linux"`
	Grace   time.Duration `yaml:"grace" doc:"how long it may take to end once its input has ended"`
}

// DefaultOptions are those of a config that names a command only.
func DefaultOptions() Options { return Options{Dir: ".", Env: []string{"PATH"}, Grace: defaultGrace} }

// Validate says what is wrong, each a *stream.OptionError.
func (o *Options) Validate() error {
	var errs []error
	if len(o.Command) == 0 {
		errs = append(errs, &stream.OptionError{Key: "command", Err: errors.New("is missing; write [PROGRAM, ARG...]")})
	}
	if o.Grace < 0 {
		errs = append(errs, &stream.OptionError{Key: "grace", Err: fmt.Errorf("%v is below zero", o.Grace)})
	}
	return errors.Join(append(errs, o.Spec("").Validate())...)
}

// Spec is what is run as the worker of that name, which the program finds as PENSTOCK_WORKER where
// Env lists it. Its Log is not set.
func (o *Options) Spec(worker string) Spec {
	grace := o.Grace
	if grace == 0 {
		grace = -1
	}
	return Spec{
		Command: o.Command, Dir: o.Dir, Env: o.Env, Extra: map[string]string{"PENSTOCK_WORKER": worker},
		Memory: o.Memory, CPU: o.CPU, Grace: grace, Attrs: []any{"worker", worker},
	}
}
