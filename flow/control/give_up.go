//penstock:pure

package control

import (
	"fmt"
	"time"
)

// End configures when the machine gives up an item that keeps failing: it is dead-lettered whole,
// or cut first if Poison.Refuse is true. Only evidence against the item counts (see ADR 17), and
// most failures in an outage are no evidence. The zero value means never.
type End struct {
	Attempts int // failures that are evidence; 0: any number
	// time since the first such failure; only time in which a lane was available counts; 0: no
	// limit
	Elapsed time.Duration
}

func (e End) validate() error {
	if e.Attempts < 0 || e.Elapsed < 0 {
		return fmt.Errorf("an end after %d attempts or %v: want positive values, or 0 for none",
			e.Attempts, e.Elapsed)
	}
	return nil
}

// reached reports whether an item must be given up. The parameter r is the evidence against the
// item, to which the caller has just added a failure.
func (e *End) reached(r *account, uptime time.Duration) bool {
	return e.Attempts > 0 && r.failures >= e.Attempts || e.Elapsed > 0 &&
		uptime-r.since >= e.Elapsed
}

// giveUp refuses the items that have reached the limits of Config.End.
func (s *settlement) giveUp(out []Command) []Command {
	for _, e := range s.backlog.suspects.toGiveUp {
		if e.isActive() && e.item.decision == undecided {
			out = s.carryOutDecision(e.item, s.refuseAsPoison(e.item, out))
		}
	}
	clear(s.backlog.suspects.toGiveUp)
	s.backlog.suspects.toGiveUp = s.backlog.suspects.toGiveUp[:0]
	return out
}
