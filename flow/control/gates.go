//penstock:pure

package control

// Gates returns the names of the gates that a [LaneStatus] may have, in the order in which they are
// asked. "none" is last.
func Gates() []string {
	return []string{
		gateBreaker, gateThrottle, gateRate, gateQuota, gateBytes, gateConcurrency, gateOrder, gateLimit,
		gateCredit, gateWindow, gateReplay, gateWaiting, gateBudget, gateFaster, gateNone,
	}
}

const (
	gateBreaker     = "breaker"
	gateThrottle    = "throttle"
	gateRate        = "rate"        // after a 429
	gateQuota       = "quota"       // Limit.Rate
	gateBytes       = "bytes"       // Limit.Bytes
	gateConcurrency = "concurrency" // Limit.Concurrency
	gateOrder       = "order"
	gateLimit       = "limit" // Limits.InFlight
	gateCredit      = "credit"
	gateWindow      = "window"
	gateReplay      = "replay"
	gateWaiting     = "waiting"
	gateBudget      = "budget"
	gateFaster      = "faster" // a busy lane is expected to be done sooner
	gateNone        = "none"
)
