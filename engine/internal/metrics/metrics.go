// Package metrics has counters and histograms. A [Set] has the counters of a component by name. The
// engine owns the sets and shows their counters in its status. The names of counters are constants
// in the code. They must not come from data, because the number of counters would then have no
// limit.
package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Set is a set of counters. The zero value is empty. It is safe for concurrent use.
type Set struct {
	mu       sync.RWMutex // guards the map; counters are atomic
	counters map[string]*atomic.Int64
}

// Add adds n to the counter with the given name. A new counter starts at 0.
func (s *Set) Add(name string, n int64) { s.counter(name).Add(n) }

// Get returns the value of the counter with the given name, or 0 if there is none.
func (s *Set) Get(name string) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c, ok := s.counters[name]; ok {
		return c.Load()
	}
	return 0
}

// All returns the values of all counters.
func (s *Set) All() map[string]int64 {
	s.mu.RLock()
	counters := maps.Clone(s.counters)
	s.mu.RUnlock()
	out := make(map[string]int64, len(counters))
	for name, c := range counters {
		out[name] = c.Load()
	}
	return out
}

func (s *Set) counter(name string) *atomic.Int64 {
	s.mu.RLock()
	c, ok := s.counters[name]
	s.mu.RUnlock()
	if ok {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.counters[name]; ok {
		return c
	}
	if s.counters == nil {
		s.counters = make(map[string]*atomic.Int64)
	}
	c = new(atomic.Int64)
	s.counters[name] = c
	return c
}
