package stream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock-io/penstock/vfs"
)

// Host gives a component access to the engine. It is safe for concurrent use.
type Host interface {
	// Log returns a logger that already names pipeline, route and component.
	Log() *slog.Logger
	// FS returns the file system. Tests replace it, to lose unsynced data.
	FS() vfs.FS
	// Go runs a named goroutine. Components must not start goroutines of their own. When the
	// component stops, the engine cancels the goroutine's context and waits for it. An error or a
	// panic stops the component and its dependents, which are created again after a backoff. An
	// error that wraps supervise.ErrStop stops the component permanently; see supervise.Final.
	//
	// The goroutines of a sink live for one run of its route. The goroutines of a processor or a
	// source live as long as the instance. The instance of a source lives as long as its pipeline;
	// see [SourceHost]. A sink must not call Go before Open, and a processor must not call it
	// before Process. The engine panics if they do.
	Go(name string, run func(context.Context) error)
	// Count adds n to the component's counter of that name, which appears in status and metrics.
	// Names are constants in snake_case. They are never made from data.
	Count(name string, n int64)
	// Fault reports a problem that does not end the component and that the counts of records do not
	// show, such as an unreadable file. The problem is logged as an error. A finite run
	// (`run --once`) continues, and returns err at its end. Faults with equal texts are reported
	// once. Fault is safe for concurrent use.
	Fault(err error)
}

// SourceHost is the [Host] of a source. The Host that the engine passes to [Component].New of a
// source implements it.
//
// A SourceHost belongs to one instance of the source. The instance belongs to the pipeline, not to
// a route, so restarts of routes affect neither the instance nor its goroutines. When a goroutine
// of the source fails, the engine stops the routes and the other goroutines, and waits with
// backoff. It then calls New again with a new SourceHost, and starts the routes again. On every
// stop the routes stop first, then the goroutines. The state directory is closed last.
type SourceHost interface {
	// Host is the part that all components have. A source may call Go at any time. If New calls Go,
	// the goroutine starts when the pipeline runs, before any Open. If New is called only to check
	// a config, the pipeline does not run, and the goroutine never starts. After the source has
	// stopped, Go starts nothing. Goroutine names have the form component/part, such as
	// tail/notify. No route can have a name of this form.
	Host
	// State returns the source's own state directory, for state that belongs to no single route.
	// The first call opens it, and creates it if it is missing. All calls of one instance return
	// the same Dir, which the engine closes. The directory's name depends only on the pipeline's
	// name, so the contents survive restarts of the pipeline and of the process. Users may delete
	// it while the process is stopped. State fails before the pipeline runs and after the source
	// has stopped. So call it in Open or in a goroutine, not in New.
	State() (vfs.Dir, error)
	// Routes returns the names of the pipeline's routes, as in [OpenOptions].Route, including
	// routes that have not opened a reader yet or wait for their restart. The set of routes may
	// change while the source runs.
	Routes() []string
	// Progress returns the stored progress of a route that is not open. A source that must
	// recognize the data of every route can thus do so before all routes have opened. The result
	// has the fields Route, Resume and Known of the options that the route's next Open will get, as
	// far as the checkpoint has them now. If the sink has a ledger, the options of Open have the
	// ledger's progress, which may differ from the result. Progress returns an error if the
	// checkpoint cannot be read, before the pipeline runs, and always if a cluster shares the
	// pipeline.
	Progress(route string) (OpenOptions, error)
}

// Role is the position of a component in a config.
type Role string

// The roles of a component.
const (
	SourceRole    Role = "source"
	ProcessorRole Role = "processor"
	SinkRole      Role = "sink"
)

// Component describes a component of the binary, built-in or third-party.
type Component struct {
	Role Role
	Name string // the key in a config; snake_case
	// When selects one of several components with the same role and name. It is the key of an
	// option: a config that sets this option gets this component. If a config sets none of these
	// options, it gets the component with an empty When. Example: there are two sinks `http`, one
	// with the When "url". A config with the option `url` gets this one.
	When string
	// Options returns a pointer to a struct that holds the defaults. docs/configuration.md
	// describes its tags. If the struct has a method Validate() error, it is called after decoding.
	// If Validate returns an [OptionError], it is shown at the option's position.
	Options func() any
	// New validates the options and creates the component. It starts nothing and accesses neither
	// disk nor network. options is the decoded result of Options. New returns a Source, Processor
	// or Sink according to Role. For a source, h is a [SourceHost]. Each goroutine that runs a
	// processor has an instance of its own.
	New func(options any, h Host) (any, error)
}

// NewComponent returns a component with options of type O. The function defaults returns new
// options with their default values. The function create is [Component.New] for decoded options.
func NewComponent[O, C any](role Role, name string, defaults func() *O,
	create func(O, Host) (C, error)) Component {
	return Component{
		Role:    role,
		Name:    name,
		Options: func() any { return defaults() },
		New:     func(o any, h Host) (any, error) { return create(*o.(*O), h) },
	}
}

// OptionError is an error of one option, with its key, so that the config reader can show its
// position.
type OptionError struct {
	// the key as written in the config, with dots for nesting: "rotate.bytes"; "" for options that
	// consist of one text
	Key string
	Err error
	At  int // offset of the mistake in the option's text, in characters
	// Word, if set, is an unknown name. Known lists the known names, of which the nearest one is
	// suggested.
	Word  string
	Known []string
	// Secret, if set, is a text of the option that must not be shown, such as a password in an
	// option that is not secret.
	Secret string
}

// OptionErrorf returns an [OptionError] for an option, with a formatted problem.
func OptionErrorf(key, format string, args ...any) error {
	return &OptionError{Key: key, Err: fmt.Errorf(format, args...)}
}

// CheckRange returns an [OptionError] if an option is less than least or more than most.
func CheckRange[T cmp.Ordered](key string, value, least, most T) error {
	if value < least || value > most {
		return OptionErrorf(key, "is %v, want %v to %v", value, least, most)
	}
	return nil
}

// Error returns the key, if any, and the problem.
func (e *OptionError) Error() string {
	if e.Key == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.Key, e.Err)
}

// Unwrap returns the problem.
func (e *OptionError) Unwrap() error { return e.Err }

// Member is one sink, with its options, of a sink that consists of several sinks (a [Composite]).
type Member struct {
	Component Component
	Options   any // the decoded result of Component.Options; nil for a component without options
}

// Composite is implemented by the options of a sink that consists of other sinks, such as failover.
// In a config these options are a list of sinks.
type Composite interface {
	// Add adds a member. The config reader calls Add for each element of the list, and then
	// Validate.
	Add(m Member)
	// Members returns the members in the order of the list.
	Members() []Member
}
