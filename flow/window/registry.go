//penstock:pure

package window

import (
	"slices"
	"time"
)

// Entry describes an algorithm for configs, traces, explanations and simulators, which refer to it
// by its name.
type Entry struct {
	Algorithm                            // the algorithm with its defaults
	With       func(o Options) Algorithm // returns the algorithm with these settings
	Adverts    bool                      // it uses the windows that workers advertise
	Experiment bool                      // it is only for simulators, not for configs
}

// Options are the settings that configs have for windows. An algorithm ignores the settings of
// other algorithms.
type Options struct {
	Size         int // size of a fixed window
	Initial, Max int
	Threshold    time.Duration
	PerAck       bool
}

// Bounded is an Algorithm with a configurable maximum size of its windows.
type Bounded interface {
	Algorithm
	Most() int // 0 means the default, 1000
}

var registry = []Entry{
	{Algorithm: Linear{}, With: Options.linear},
	{Algorithm: AIMD{}, With: Options.aimd},
	{Algorithm: Queue{}, With: Options.queue},
	{Algorithm: Credit{}, With: Options.credit, Adverts: true},
	{Algorithm: Rate{}, With: Options.rate, Experiment: true},
	{Algorithm: Fixed{}, With: Options.fixed},
}

func (o Options) queue() Algorithm  { return Queue{Initial: o.Initial, Max: o.Max} }
func (o Options) aimd() Algorithm   { return AIMD{Initial: o.Initial, Max: o.Max} }
func (o Options) credit() Algorithm { return Credit{Max: o.Max} }
func (o Options) fixed() Algorithm  { return Fixed{Size: o.Size} }
func (o Options) rate() Algorithm   { return Rate{Initial: o.Initial, Max: o.Max} }

func (o Options) linear() Algorithm {
	l := Linear{Initial: o.Initial, Max: o.Max, Threshold: o.Threshold}
	if o.PerAck {
		l.Step = PerAck
	}
	return l
}

// Registry returns all algorithms.
func Registry() []Entry { return slices.Clone(registry) }

// Find returns the algorithm of this name, and nil if there is none.
func Find(name string) *Entry {
	for _, e := range registry {
		if e.Name() == name {
			return &e
		}
	}
	return nil
}

// Names returns the names of all algorithms that a config may use, without the experimental ones.
func Names() (names []string) {
	for _, e := range registry {
		if !e.Experiment {
			names = append(names, e.Name())
		}
	}
	return names
}
