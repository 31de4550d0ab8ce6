package stream

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock-io/penstock/vfs"
)

// Host gives a component access to the engine. It is safe for concurrent use.
type Host interface {
	// Log returns a logger that already names pipeline, route and component.
	Log() *slog.Logger
	// FS returns the file system. Tests replace it, to lose what was not synced.
	FS() vfs.FS
	// Go runs a goroutine under a name. Components start no goroutines of their own. The engine
	// cancels the goroutine's context and waits for it when the component stops. An error or a panic
	// stops the component and everything that depends on it, and all of that is recreated after a
	// backoff; an error that wraps supervise.ErrStop stops it permanently.
	//
	// The lifetime depends on the component: for a sink it is one run of its route, for a processor
	// the instance, for a source the instance, which lives as long as its pipeline; see [SourceHost].
	// A sink or processor must not call Go before Open or Process; the engine panics if it does.
	Go(name string, run func(context.Context) error)
	// Count adds n to the component's counter of that name, which appears in status and metrics. Names
	// are constants in snake_case, never made from data.
	Count(name string, n int64)
	// Fault reports a problem that ends nothing and that the counts of records do not show: a file
	// that cannot be read, a record that may have got the text of another. It is logged as an error,
	// and a finite run (`run --once`) ends with it. The same text is reported once. It is safe for
	// concurrent use.
	Fault(err error)
}

// SourceHost is the [Host] of a source. The Host that the engine passes to [Component].New of a
// source implements it.
//
// It belongs to one instance of the source and so to the pipeline, not to a route. A restart of a
// route, or of all of them, leaves the instance and its goroutines alone. When a goroutine fails,
// the engine stops the routes and the other goroutines, waits with backoff, calls New again with a
// new SourceHost, and starts the routes again. On every stop the routes stop first, then the
// goroutines, and the state directory is closed last.
type SourceHost interface {
	// Host is the part that all components have. Go may be called at any time: goroutines that New
	// asks for start when the pipeline runs, before any Open, and never if it does not run, as in a
	// check of a config. After the source has stopped Go starts nothing. Goroutine names have the form
	// component/part, such as tail/notify, which no route can have.
	Host
	// State returns the source's own state directory, for state that belongs to no single route. It is
	// opened, and created if missing, by the first call; all calls of one instance return the same
	// Dir, which the engine closes. The directory's name depends on that of the pipeline alone, so the
	// contents survive restarts of the pipeline and of the process. Its user may delete it while the
	// process is stopped. State fails before the pipeline runs (call it in Open or in a goroutine, not
	// in New) and after the source has stopped.
	State() (vfs.Dir, error)
	// Routes returns the names of the pipeline's routes, as in [OpenOptions].Route, including those
	// that have not opened a reader yet or wait for their restart. Routes may join and leave while the
	// source runs.
	Routes() []string
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
	// Options returns a pointer to a struct that holds the defaults; see docs/configuration.md for its
	// tags. A method Validate() error on it is called after decoding; an [OptionError] in it is shown
	// at its place.
	Options func() any
	// New checks and assembles; it starts nothing and touches neither disk nor network. options is
	// what Options returned, decoded. The result is a Source, Processor or Sink, as Role says; h of a
	// source is a [SourceHost]. Each goroutine that runs a processor gets one of its own from New.
	New func(options any, h Host) (any, error)
}

// OptionError says which option is wrong, so that the config's reader can show the place.
type OptionError struct {
	Key string // as written in the config, with dots for nesting: "rotate.bytes"; "" for options that are one text
	Err error
	At  int // characters into the option's text where it is wrong; 0 means its start
	// Word, when set, is a name that does not exist, and Known those that do: the nearest is shown
	// beside the error.
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
