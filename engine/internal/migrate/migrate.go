// Package migrate has the common parts of the `penstock import` commands, which convert the config
// of another program. A [Value] is a tree of the other program's settings. It records which
// settings were read. A [Note] is about a setting or file that was not converted exactly. A
// [Builder] writes the new config. A [Carrier] converts stored read positions into a first
// checkpoint. Each subpackage converts the config of one program.
package migrate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Kind is the severity of a Note.
type Kind string

// Values of Kind, in decreasing severity.
const (
	Lost     Kind = "lost"     // there is no equivalent, so the new config does less
	Differs  Kind = "differs"  // the equivalent works in a different way
	Unneeded Kind = "unneeded" // no setting is needed for the same effect
)

// Note is a remark about a setting or a file that was not converted exactly.
type Note struct {
	Line int    // in the original file; 0 if unknown or about the whole file
	Key  string // key of the setting or name of the part
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

// Sort sorts notes by kind and then by line.
func Sort(notes []Note) {
	slices.SortStableFunc(notes, func(x, y Note) int {
		return cmp.Or(cmp.Compare(rank(x.Kind), rank(y.Kind)), cmp.Compare(x.Line, y.Line))
	})
}

func rank(k Kind) int { return slices.Index([]Kind{Lost, Differs, Unneeded}, k) }

// Result is a converted config, with notes about it.
type Result struct {
	Name     string     // of the converted part: "agent a1", "filebeat"
	Config   string     // the config as YAML
	Notes    []Note     // sorted by kind and then by line
	Progress []Progress // of sources with stored read positions
	Runnable bool       // every source and sink was converted
}

// Progress is the stored progress of one source of the other program. Routes are the routes of the
// new config that resume from it.
type Progress struct {
	Pipeline string
	Routes   []string
	// Carry converts the stored positions. It reads them and their files, and changes nothing.
	// Relative paths are relative to dir. If the position of a file is doubtful, Carry uses an
	// earlier position or none. So no data is lost, but data may be delivered again, and a note
	// describes that.
	Carry func(files vfs.FS, dir string) (Carried, error)
}

// Carried is the result of Progress.Carry. Marks is the progress with which each route starts: the
// read positions of the files. Begun has marks at position 0, for files that must be read from
// their beginning. They are needed with `start: end`: a route reads a file without a mark from its
// end.
type Carried struct {
	Marks, Begun []stream.Mark
	Notes        []Note
	Unreadable   error // of the files and directories that could not be read; they have no marks
}
