// Package metrics has counters and histograms. A [Set] has the counters of a component by name. The
// engine owns the sets and shows their counters in its status. The names of counters are constants
// in the code. They must not come from data, because the number of counters would then have no
// limit.
package metrics

import (
	"sync"
	"sync/atomic"
)

// Set is a set of counters. The zero value is empty. It is safe for concurrent use.
type Set struct{ counters sync.Map } // from name to *atomic.Int64

// Add adds n to the counter with the given name. A new counter starts at 0.
func (s *Set) Add(name string, n int64) {
	counter, ok := s.counters.Load(name)
	if !ok {
		counter, _ = s.counters.LoadOrStore(name, new(atomic.Int64))
	}
	counter.(*atomic.Int64).Add(n)
}

// All returns the values of all counters.
func (s *Set) All() map[string]int64 {
	out := make(map[string]int64)
	for name, counter := range s.counters.Range {
		out[name.(string)] = counter.(*atomic.Int64).Load()
	}
	return out
}
