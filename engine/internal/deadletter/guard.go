//penstock:pure

package deadletter

import (
	"fmt"
	"time"
)

const (
	guardPatience = 10 * time.Second // after which the start is judged by a tenth of the records that it needs else
	guardMemory   = 100_000          // records; beyond it, older ones count half, again and again
)

// Guard stops a route that turns too much of its input into dead letters, as a wrong token or
// pattern does: more than Share of at least Records records, or everything that a run began with.
// The start is judged when Records/10 records are dead and none is delivered, or Records/100 after
// 10 s; so a few bad records at the start condemn nobody. It is not safe for concurrent use.
//
// The share is that of the run so far; of a long run it is that of the last 100,000 to 200,000
// records or so, so that a stream that was good for a year is stopped within minutes as well.
type Guard struct {
	Share   float64 // of dead records that is borne, 0 to 1
	Records int64   // judged at least
	Off     bool    // nothing is judged

	starting        bool      // the start is judged
	began           time.Time // when it was
	delivered, dead int64     // since then
	seen, lost      int64     // of the share's, faded
	stopped         error
}

// Start has the guard judge the start of a run. It is not called for one that resumes where another
// was killed: what a kill has left of a batch may be its refused records alone.
func (g *Guard) Start(now time.Time) { g.starting, g.began = true, now }

// Observe counts settled records. Dropped ones count for nothing. An error, the same from then on,
// stops the route; it is a *GuardError.
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

// enough returns how many dead records condemn the start.
func (g *Guard) enough(now time.Time) int64 {
	if now.Sub(g.began) >= guardPatience {
		return max(1, g.Records/100)
	}
	return max(1, g.Records/10)
}

// GuardError reports that too many records have become dead letters.
type GuardError struct {
	Start    bool  // none of the records that the run began with was delivered
	Dead, Of int64 // records
	Share    float64
}

// Error returns the numbers and the remedy.
func (e *GuardError) Error() string {
	const remedy = "look at the reasons in the dead letters: most often a pattern, format, token or address in the config is wrong"
	if e.Start {
		return fmt.Sprintf("stopped by the guard: all %d records so far became dead letters; %s", e.Dead, remedy)
	}
	return fmt.Sprintf("stopped by the guard: %d of the last %d records (%.1f %%) became dead letters, more than %g %%; %s",
		e.Dead, e.Of, float64(e.Dead)*100/float64(e.Of), e.Share*100, remedy)
}
