//penstock:pure

// Package peers holds the flow control of other programs, rewritten from their published rules, so
// that the simulator can set them beside ours in one table: Vector's adaptive request concurrency,
// Netflix' Vegas and Gradient2, Finagle's Peak EWMA, and TCP Reno (RFC 5681).
//
// They are window.Algorithm and dispatch.Policy values and run in the production machine, which
// gives them what their own programs have around them: timeouts, redelivery, the breaker. Their
// constants are their programs' defaults. Nothing of the product imports them.
package peers

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// simple is what all windows here share: they count batches, have no epochs and do not take back a
// timeout.
type simple struct{ state window.State }

func (simple) Batches() bool          { return true }
func (simple) Epoch() uint32          { return 0 }
func (simple) OnUndo(time.Duration)   {}
func (s *simple) State() window.State { return s.state }

// inFlight is a sample's, in batches of its own size.
func inFlight(s *window.Sample) float64 {
	if s.Cost <= 0 {
		return 1
	}
	return s.InFlightAtSend / s.Cost
}
