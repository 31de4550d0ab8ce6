//penstock:pure

package deadletter

import (
	"fmt"
	"time"
)

const (
	// guardPatience is the time after the start of a run from which Records/100 dead records are
	// enough to stop the route, instead of Records/10.
	guardPatience = 10 * time.Second
	// guardMemory bounds the records that the share covers. When their number exceeds twice
	// guardMemory, the counts of all earlier records are halved.
	guardMemory = 100_000
)

// Guard stops a route that dead-letters too much of its input, for example because of a wrong token
// or pattern. Once at least Records records have been delivered or dead-lettered, it stops the
// route if the share of dead-lettered ones exceeds Share.
//
// At the start of a run fewer records are enough. As long as none is delivered, the route stops at
// Records/10 dead records, and after 10 s at Records/100. A few bad records at the start therefore
// do not stop a route.
//
// The share covers the current run. In a long run it covers about the last 100,000 to 200,000
// records, so that a stream that was good for a long time is stopped within minutes as well. Guard
// is not safe for concurrent use.
type Guard struct {
	Share   float64 // tolerated share of dead records, 0 to 1
	Records int64   // minimum number of records to judge
	Off     bool    // disables the guard

	starting        bool      // the start has not succeeded or failed yet
	began           time.Time // time of the start
	delivered, dead int64     // since the start
	seen, lost      int64     // for the share, with old records weighted less
	stopped         error
}

// Start begins the check of the start of a run. It is not called for a run that resumes after a
// kill, because the rest of the interrupted batch may consist of refused records only.
func (g *Guard) Start(now time.Time) { g.starting, g.began = true, now }

// Observe counts settled records, but not dropped ones. It returns a *GuardError if the route must
// stop; later calls return the same error.
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

// enough returns the number of dead records at which the start of the run fails.
func (g *Guard) enough(now time.Time) int64 {
	if now.Sub(g.began) >= guardPatience {
		return max(1, g.Records/100)
	}
	return max(1, g.Records/10)
}

// GuardError reports that too many records have become dead letters.
type GuardError struct {
	Start    bool  // none of the first records of the run was delivered
	Dead, Of int64 // records
	Share    float64
}

// Error returns the numbers and the remedy.
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
