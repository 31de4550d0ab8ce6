package httppoll

import (
	"fmt"
	"sync"
	"time"
)

// failingAfter is the time for which all requests must have failed before the source reports a
// failure. Shorter failures are common, and only logged.
const failingAfter = 10 * time.Second

// health records whether the requests of a reader fail. It is safe for concurrent use.
type health struct {
	mu       sync.Mutex
	failures int       // consecutive failed requests
	since    time.Time // time of the first of them
	last     error     // reason of the last of them
}

// succeeded notes a successful request.
func (h *health) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.last = 0, nil
}

// failed notes a failed request.
func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == 0 {
		h.since = time.Now()
	}
	h.failures++
	h.last = err
}

// failure returns an error if the last two or more requests have failed, the first of them at least
// failingAfter ago. A single failed request is not enough: the server may have demanded a wait of
// more than failingAfter before the next one.
func (h *health) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	failing := time.Since(h.since)
	if h.failures < 2 || failing < failingAfter {
		return nil
	}
	return fmt.Errorf("the last %d requests have failed, for %v: %w", h.failures,
		failing.Round(time.Second), h.last)
}
