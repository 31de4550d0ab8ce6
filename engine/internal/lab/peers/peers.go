//penstock:pure

// Package peers implements the flow control of other programs from their published rules, for
// comparison in the simulator: Vector's adaptive request concurrency, Netflix' Vegas and Gradient2,
// Finagle's Peak EWMA, and TCP Reno (RFC 5681).
//
// Each exported type implements window.Algorithm or dispatch.Policy, and is used with the
// production code of package control. In its original program, an algorithm is surrounded by
// features such as timeouts, redelivery and a breaker. Here the production code has these features.
// Defaults are those of the original programs. Only the simulator and tests import this package.
package peers

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// simple is the common part of all windows of this package. Such a window counts batches. If a
// response arrives after the timeout, the window keeps the effect of the timeout.
type simple struct{ state window.State }

func (simple) Batches() bool          { return true }
func (simple) Epoch() uint32          { return 0 }
func (simple) OnUndo(time.Duration)   {}
func (s *simple) State() window.State { return s.state }

// inFlight returns the number of in-flight batches when the sampled batch was sent: the in-flight
// cost at that time, divided by the cost of the batch.
func inFlight(s *window.Sample) float64 {
	if s.Cost <= 0 {
		return 1
	}
	return s.InFlightAtSend / s.Cost
}
