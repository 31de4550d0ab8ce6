package cli

import (
	"io"
	"sync"
)

// standardOutput is the stdout of a command. It keeps the first error of a write. Cobra and some
// commands ignore such errors, so the program checks it at the end.
type standardOutput struct {
	w io.Writer

	mu     sync.Mutex // guards failed; not held during a write
	failed error
}

// Write implements io.Writer.
func (s *standardOutput) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failed == nil {
			s.failed = err
		}
	}
	return n, err
}

// err returns the first error of a write, or nil.
func (s *standardOutput) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}
