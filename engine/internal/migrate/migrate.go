// Package migrate contains the common parts of the `penstock import` commands. It has notes about
// settings that were not carried over, and a tree of the other program's settings, which records
// the settings that were read. It also writes the new config, and converts stored read positions
// into a first checkpoint. Each of its subpackages converts the config of one program.
package migrate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Kind is the severity of a note.
type Kind string

// The kinds, in decreasing severity.
const (
	Lost     Kind = "lost"     // no equivalent exists: the config does less than the original
	Differs  Kind = "differs"  // it works in a different way
	Unneeded Kind = "unneeded" // no setting is needed for the same effect
)

// Note describes a setting without an exact equivalent.
type Note struct {
	Line int    // in the original file; 0 if it is not known or the note is about the whole file
	Key  string // the setting's key or the part's name
	Kind Kind
	Text string
}

// String returns the note as one line of text.
func (n Note) String() string {
	if n.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", n.Kind, n.Key, n.Text)
	}
	return fmt.Sprintf("%s: line %d: %s: %s", n.Kind, n.Line, n.Key, n.Text)
}

// Sort sorts notes by kind, then by line.
func Sort(notes []Note) {
	slices.SortStableFunc(notes, func(x, y Note) int {
		return cmp.Or(cmp.Compare(rank(x.Kind), rank(y.Kind)), cmp.Compare(x.Line, y.Line))
	})
}

func rank(k Kind) int { return slices.Index([]Kind{Lost, Differs, Unneeded}, k) }

// Result is a converted config with its notes.
type Result struct {
	Name     string     // of the converted part: "agent a1", "filebeat"
	Config   string     // YAML
	Notes    []Note     // by kind, then by line
	Progress []Progress // of sources with stored read positions
	Runnable bool       // every route has a source and a sink
}

// Progress is the stored progress of one source. Routes lists the routes of the new config that
// continue from it.
type Progress struct {
	Pipeline string
	Routes   []string
	// Carry reads the stored positions and the files that they refer to, and modifies nothing.
	// Relative paths are relative to dir. If the position of a file cannot be trusted, the file
	// gets an earlier position or none. Nothing is lost then, and a note describes the repeated
	// data.
	Carry func(files vfs.FS, dir string) (Carried, error)
}

// Carried is the result of Progress.Carry: the initial marks of each route.
type Carried struct {
	Marks []stream.Mark
	Notes []Note
}
