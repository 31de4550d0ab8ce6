package streamtest

import (
	"slices"
	"sync"
)

// tally keeps what a component counts and reports. Its zero value is ready, and it is safe for
// concurrent use.
type tally struct {
	mu     sync.Mutex // guards what follows
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

// Counted returns what was counted under name.
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

// Faults returns what the component has reported by Fault.
func (t *tally) Faults() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.faults)
}

// Route is the name of the one route that a host has until SetRoutes.
const Route = "test/main"

// routes are those of a host. The zero value is the one route [Route]; it is safe for concurrent
// use.
type routes struct {
	mu    sync.Mutex // guards what follows
	set   bool
	names []string
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

// SetRoutes changes what Routes returns.
func (r *routes) SetRoutes(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set, r.names = true, slices.Clone(names)
}
