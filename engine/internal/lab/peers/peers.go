//penstock:pure

// Package peers implements the flow control of other programs from their published rules, for
// comparison in the simulator: Vector's adaptive request concurrency, Netflix' Vegas and Gradient2,
// Finagle's Peak EWMA, and TCP Reno (RFC 5681).
//
// Each implements window.Algorithm or dispatch.Policy, and runs in the production machine. The
// machine adds the features that surround the algorithm in its own program: timeouts, redelivery,
// the breaker. The constants are the defaults of those programs. The product does not import this
// package.
package peers

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// simple is the common part of all windows of this package. They count batches, ignore the epochs
// of workers, and do not undo the effect of a timeout.
type simple struct{ state window.State }

func (simple) Batches() bool          { return true }
func (simple) Epoch() uint32          { return 0 }
func (simple) OnUndo(time.Duration)   {}
func (s *simple) State() window.State { return s.state }

// inFlight returns a sample's cost in flight, in batches of its own size.
func inFlight(s *window.Sample) float64 {
	if s.Cost <= 0 {
		return 1
	}
	return s.InFlightAtSend / s.Cost
}
