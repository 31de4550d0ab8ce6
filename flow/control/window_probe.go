//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// windowProbe schedules probes that narrow a window to measure the round trip of the worker without
// a queue.
type windowProbe struct {
	prober window.Prober // nil if the window does not measure
	on     bool          // a probe runs
	at     time.Duration // earliest time of the next probe; 0: not planned
	ends   time.Duration // latest end of the running probe
	widen  float64       // windowGate.widen while a probe runs
}

// A probe ends at the latest after probeRounds round trips of its lane, or after a second if that
// is longer.
const probeRounds = 40

// over reports whether the current probe is complete, or has taken too long.
func (d *windowProbe) over(now time.Duration) bool { return !d.prober.Probing() || now >= d.ends }

// due reports whether a probe may begin now. If no probe is planned, due plans one at a random
// time.
func (d *windowProbe) due(now time.Duration, jitter func(d time.Duration, from,
	to float64) time.Duration) bool {
	within := d.prober.ProbeWithin()
	if within == 0 {
		d.at = 0
		return false
	}
	if d.at == 0 || d.at > now+2*within {
		d.at = now + jitter(within, 0.75, 1.25)
	}
	return now >= d.at
}

// begin begins a probe, which narrows the window.
func (d *windowProbe) begin(now, roundTrip time.Duration) {
	d.on, d.ends = true, now+max(time.Second, probeRounds*roundTrip)
	d.prober.BeginProbe(now)
}

// end ends the probe, so that the window widens again. It does not plan the next probe.
func (d *windowProbe) end(now time.Duration) {
	d.on, d.at = false, 0
	if d.prober.Probing() {
		d.prober.EndProbe(now)
	}
}
