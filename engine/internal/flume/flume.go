// Package flume turns the configuration of a Flume 1.11 agent into one of penstock: sources
// spooldir and TAILDIR, channels memory and file, sinks http, file_roll and null, sink groups. It
// holds the reading of Java properties and the tables of what stands for what. What cannot be
// carried over it names, and never guesses: a sink that does not exist here leaves its route
// without one, so that `penstock validate` refuses it.
//
// Convert reads no file but what it is given. [Progress.Carry] reads how far Flume had come,
// position files and tracker directories, and the files that those are about; it changes nothing.
// The command `penstock import flume` owns both.
//
// Options and their defaults are those of the Flume 1.11.0 User Guide and its sources.
package flume

import (
	"cmp"
	"fmt"
	"slices"
)

// Weight says what a note means for the one who moves.
type Weight string

// The weights, from the heaviest.
const (
	Lost     Weight = "lost"     // there is no such thing here: the config is not what the agent was
	Differs  Weight = "differs"  // it works, but in another way
	Needless Weight = "needless" // nothing has to be said here for the same effect
)

// Note is one thing that was not carried over as it stands.
type Note struct {
	Line   int    // of the agent's file; 0: the whole
	Key    string // the property's key, or the part's name
	Weight Weight
	Text   string
}

// Result is a config and what has to be said about it.
type Result struct {
	Agent    string
	Config   string     // YAML
	Notes    []Note     // by weight, then line
	Progress []Progress // of sources that keep how far they have come
	Runnable bool       // every route has a sink
}

// Convert converts the agent called name, or the only one if name is "".
func Convert(text, name string) (Result, error) {
	all, err := readProperties(text)
	if err != nil {
		return Result{}, err
	}
	a, err := choose(agents(all), name)
	if err != nil {
		return Result{}, err
	}
	c := &converter{agent: a}
	c.convert()
	Sort(c.notes)
	return Result{Agent: a.name, Config: c.yaml.String(), Notes: c.notes, Progress: c.progress, Runnable: c.broken == 0}, nil
}

// Sort orders notes by weight, then line.
func Sort(notes []Note) {
	slices.SortStableFunc(notes, func(x, y Note) int {
		return cmp.Or(cmp.Compare(rank(x.Weight), rank(y.Weight)), cmp.Compare(x.Line, y.Line))
	})
}

func rank(w Weight) int { return slices.Index([]Weight{Lost, Differs, Needless}, w) }

// String is one line for a person.
func (n Note) String() string {
	if n.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", n.Weight, n.Key, n.Text)
	}
	return fmt.Sprintf("%s: line %d: %s: %s", n.Weight, n.Line, n.Key, n.Text)
}
