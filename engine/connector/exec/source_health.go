package exec

import (
	"sync"
	"time"
)

// stableAfter is the time after which a run of the command is stable even if it has written no
// record. It has the value of the constant of this name in package pipeline, for routes.
const stableAfter = 30 * time.Second

// commandHealth records whether the runs of a command fail before they are stable. A run is stable
// when it has written a record, has lasted stableAfter or has ended with status 0. It is safe for
// concurrent use.
type commandHealth struct {
	mu     sync.Mutex
	failed error     // failure of a run that was not stable; nil if a later run has been stable
	begun  time.Time // start of the current run or, if none is running, of the last one
	ended  bool      // no run is running
	stable bool      // the current or last run has written a record
}

// begin notes the start of a run.
func (h *commandHealth) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.ended, h.stable = time.Now(), false, false
}

// wrote notes that the run has written a record.
func (h *commandHealth) wrote() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stable, h.failed = true, nil
}

// end notes that the run has ended with err.
func (h *commandHealth) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || h.isStable() {
		h.failed = nil
	} else {
		h.failed = err
	}
	h.ended = true
}

// isStable reports whether the current run is stable. The caller holds h.mu.
func (h *commandHealth) isStable() bool {
	return !h.ended && (h.stable || time.Since(h.begun) >= stableAfter)
}

// failure returns the failure of the last run that was not stable, or nil if a run has been stable
// since.
func (h *commandHealth) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isStable() {
		return nil
	}
	return h.failed
}
