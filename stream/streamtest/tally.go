package streamtest

import (
	"slices"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// tally records the counts and faults of a component. The zero value is ready to use. It is safe
// for concurrent use.
type tally struct {
	mu     sync.Mutex // guards the fields below
	counts map[string]int64
	faults []error
}

// Count implements stream.Host.
func (t *tally) Count(name string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[string]int64)
	}
	t.counts[name] += n
}

// Counted returns the value of the counter with the given name.
func (t *tally) Counted(name string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

func (t *tally) addFault(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, err)
}

// Faults returns the errors that the component has reported with Fault.
func (t *tally) Faults() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.faults)
}

// Route is the name of the only route of a host before SetRoutes.
const Route = "test/main"

// routes holds the names and the progress of the routes that a host reports (Routes, Progress).
// The zero value has the single route [Route], without progress. It is safe for concurrent use.
type routes struct {
	mu       sync.Mutex // guards the fields below
	set      bool
	names    []string
	progress func(route string) (stream.OpenOptions, error) // nil: there is none
}

// Routes implements stream.SourceHost.
func (r *routes) Routes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.set {
		return []string{Route}
	}
	return slices.Clone(r.names)
}

// SetRoutes changes the result of Routes.
func (r *routes) SetRoutes(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set, r.names = true, slices.Clone(names)
}

// Progress implements stream.SourceHost.
func (r *routes) Progress(route string) (stream.OpenOptions, error) {
	r.mu.Lock()
	progress := r.progress
	r.mu.Unlock()
	if progress == nil {
		return stream.OpenOptions{Route: route}, nil
	}
	return progress(route)
}

// SetProgress makes Progress return the results of the function progress.
func (r *routes) SetProgress(progress func(route string) (stream.OpenOptions, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = progress
}
