//penstock:pure

package deadletter

import (
	"fmt"
	"time"
)

const (
	// guardPatience applies to a run that has delivered nothing yet. Before guardPatience has
	// passed, a tenth of Guard.Records dead records stop the route. After that, a hundredth of
	// Guard.Records is enough.
	guardPatience = 10 * time.Second
	// guardMemory bounds the number of records over which the share of dead records is computed.
	// When they are more than twice this number, the counts of all records and of dead ones are
	// halved, so that older records count less.
	guardMemory = 100_000
)

// Guard stops a route that dead-letters too many records, for example because of a wrong token or
// pattern. The Guard stops the route if the share of dead-lettered records exceeds Share. It does
// so only after at least Records records have been delivered or dead-lettered.
//
// After Start, until the run has delivered its first record, fewer dead records are enough:
// Records/10 in the first 10 s, and Records/100 later. For example, with Records = 1000, the route
// stops after 100 dead records, or after 10 once 10 s have passed.
//
// The share is computed over the current run, and in a long run over about the last 100,000 to
// 200,000 records. So the Guard also stops a route if its records turn bad after a long time. A
// Guard is not safe for concurrent use.
type Guard struct {
	Share   float64 // tolerated share of dead records, 0 to 1
	Records int64   // minimum number of records before the share is checked
	Off     bool    // disables the guard

	starting        bool      // Start was called
	began           time.Time // time of the call of Start
	delivered, dead int64     // counts of the run
	seen, lost      int64     // counts for the share; old records count less
	stopped         error
}

// Start begins the stricter check that applies until a run has delivered its first record. It is
// usually not called if a process resumes partitions with settled data. The first batch may then be
// the rest of an earlier batch, and consist only of records that a worker had refused.
func (g *Guard) Start(now time.Time) { g.starting, g.began = true, now }

// Observe counts records that were delivered or dead-lettered. It returns a *GuardError if the
// route must stop. Later calls return the same error.
func (g *Guard) Observe(now time.Time, delivered, dead int64) error {
	if g.stopped != nil || g.Off {
		return g.stopped
	}
	g.delivered += delivered
	g.dead += dead
	if g.seen += delivered + dead; g.seen > guardMemory*2 {
		g.seen, g.lost = g.seen/2, g.lost/2
	}
	g.lost += dead
	switch {
	case g.starting && g.delivered == 0 && g.dead >= g.enough(now):
		g.stopped = &GuardError{Start: true, Dead: g.dead, Of: g.dead, Share: g.Share}
	case g.seen >= g.Records && float64(g.lost) > float64(g.seen)*g.Share:
		g.stopped = &GuardError{Dead: g.lost, Of: g.seen, Share: g.Share}
	}
	return g.stopped
}

// enough returns the number of dead records that stop the route while the run has not delivered a
// record.
func (g *Guard) enough(now time.Time) int64 {
	if now.Sub(g.began) >= guardPatience {
		return max(1, g.Records/100)
	}
	return max(1, g.Records/10)
}

// GuardError is the error with which a Guard stops a route.
type GuardError struct {
	Start    bool  // no record of the run was delivered
	Dead, Of int64 // number of dead records, of all records that were counted
	Share    float64
}

// Error returns the numbers and a remedy.
func (e *GuardError) Error() string {
	const remedy = "check the reasons in the dead letters: usually a pattern, format, token or " +
		"address in the config is wrong"
	if e.Start {
		return fmt.Sprintf("stopped by the guard: all %d records so far became dead letters; %s",
			e.Dead, remedy)
	}
	return fmt.Sprintf("stopped by the guard: %d of the last %d records (%.1f %%) became dead "+
		"letters, more than %g %%; %s",
		e.Dead, e.Of, float64(e.Dead)*100/float64(e.Of), e.Share*100, remedy)
}
