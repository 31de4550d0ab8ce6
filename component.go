package penstock

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock-io/penstock/vfs"
)

// Host is all that a component gets from the engine.
type Host interface {
	// Log is a logger that already names pipeline, route and component.
	Log() *slog.Logger
	// FS is the file system, a seam so that tests can lose what was not synced.
	FS() vfs.FS
	// Go runs a goroutine under a name. Its context ends when the route stops; the route waits for it; a
	// panic or an error ends the route, which starts again, with a new component, after a wait. An error that is
	// supervise.ErrStop ends it for good. Of a processor it ends with that instance. Components start none of their own.
	Go(name string, run func(context.Context) error)
	// Count adds n to the component's counter of that name, which appears in status and metrics. Names are
	// constants in snake_case, never made from data.
	Count(name string, n int64)
}

// Role says where in a config a component stands.
type Role string

// The roles of a component.
const (
	SourceRole    Role = "source"
	ProcessorRole Role = "processor"
	SinkRole      Role = "sink"
)

// Component is one line in the list of what the binary contains; an outsider's line looks the same.
type Component struct {
	Role Role
	Name string // the key in a config; snake_case
	// Options returns a pointer to a struct that holds the defaults; see docs/configuration.md for its tags. A
	// method Validate() error on it is called after decoding; an [OptionError] in it is shown at its place.
	Options func() any
	// New checks and assembles; it starts nothing and touches neither disk nor network. options is what
	// Options returned, decoded. The result is a Source, Listener, Processor or Sink, as Role says. A
	// Processor is made anew for each goroutine that runs it.
	New func(options any, h Host) (any, error)
}

// OptionError says which option is wrong, so that the config's reader can show the place.
type OptionError struct {
	Key string // as written in the config, with dots for nesting: "rotate.bytes"; "" for options that are one text
	Err error
	At  int // characters into the option's text where it is wrong; 0 means its start
	// Word, when set, is a name that does not exist, and Known those that do: the nearest is shown beside the error.
	Word  string
	Known []string
}

// Error gives the key, if there is one, and what is wrong with it.
func (e *OptionError) Error() string {
	if e.Key == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.Key, e.Err)
}

// Unwrap returns what is wrong.
func (e *OptionError) Unwrap() error { return e.Err }
