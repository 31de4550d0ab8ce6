//penstock:pure

package dispatch

import "slices"

// Entry describes a policy for configs, traces and simulators, which refer to it by its name.
type Entry struct {
	Policy                      // the policy with its defaults
	With   func(Options) Policy // returns the policy with these settings; nil if it has none
}

// Options are the settings that configs have for dispatch.
type Options struct {
	Band float64 // the Band of LeastCompletion
}

var registry = []Entry{
	{Policy: LeastCompletion{}, With: func(o Options) Policy { return LeastCompletion(o) }},
	{Policy: RoundRobin{}},
	{Policy: Hash{}},
}

// Registry returns all policies.
func Registry() []Entry { return slices.Clone(registry) }

// Find returns the policy of this name with these settings, and nil if there is none.
func Find(name string, o Options) Policy {
	for _, e := range registry {
		switch {
		case e.Name() != name:
		case e.With != nil:
			return e.With(o)
		default:
			return e.Policy
		}
	}
	return nil
}

// Names returns the names of all policies, which a config may use.
func Names() (names []string) {
	for _, e := range registry {
		names = append(names, e.Name())
	}
	return names
}
