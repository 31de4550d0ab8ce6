package pipeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// stability records whether one run of a route is stable. A run that fails before it is stable is
// likely to fail again in the same way.
type stability struct {
	settled atomic.Bool // a batch with records has settled

	mu     sync.Mutex // guards the fields below
	opened time.Time  // when sink and reader had opened; zero if they have not
	ended  time.Time  // zero if the run has not ended
}

// stableAfter is the time after which a run is stable even if it has settled no batch.
const stableAfter = 30 * time.Second

// open notes that sink and reader have opened.
func (s *stability) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = time.Now()
}

// settle notes that a batch with records has settled.
func (s *stability) settle() { s.settled.Store(true) }

// end records the end of the run. It does not change the result of isStable.
func (s *stability) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Now()
}

// hasOpened reports whether sink and reader have opened.
func (s *stability) hasOpened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.opened.IsZero()
}

// isStable reports whether the route has opened, and has then settled a batch with records or run
// for stableAfter.
func (s *stability) isStable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.ended
	if end.IsZero() {
		end = time.Now()
	}
	return !s.opened.IsZero() && (s.settled.Load() || end.Sub(s.opened) >= stableAfter)
}
