//penstock:pure

package deadletter

import "fmt"

const (
	guardRecords = 1000    // are judged at least
	guardShare   = 10      // per cent of dead records that are still borne
	guardMemory  = 100_000 // records; beyond it, what lies longer back counts half, again and again
)

// Guard stops a route whose dead share passes 10 % of at least 1,000 records, or whose whole first batch is dead: a wrong
// token or a wrong pattern must not turn a stream into dead letters. The zero value is ready. It is not safe for concurrent
// use.
//
// The share is that of the run so far; of a long run it is that of the last 100,000 to 200,000 records or so, because a
// stream that was good for a year must be stopped within minutes all the same.
type Guard struct {
	first           int64 // records of the first batch; 0: not said
	delivered, dead int64 // of the first batch's judgement
	seen, lost      int64 // of the share's, faded
	stopped         error
}

// First says how many records the first batch has, before any of it is observed. Without it, as in a run that goes on where
// another was killed, that batch is not judged by itself. Batches settle in pieces and in any order, and a single refused
// record that settles first condemns nobody.
func (g *Guard) First(records int) { g.first = int64(records) }

// Observe counts settled records, of a batch or of a piece. Dropped ones count for nothing. An error, the same from then on,
// stops the route; it is a *GuardError.
func (g *Guard) Observe(delivered, dead int64) error {
	if g.stopped != nil {
		return g.stopped
	}
	g.delivered += delivered
	g.dead += dead
	if g.seen += delivered + dead; g.seen > guardMemory*2 {
		g.seen, g.lost = g.seen/2, g.lost/2
	}
	g.lost += dead
	switch {
	case g.first > 0 && g.delivered == 0 && g.dead >= g.first:
		g.stopped = &GuardError{First: true, Dead: g.dead, Of: g.dead}
	case g.seen >= guardRecords && g.lost*100 > g.seen*guardShare:
		g.stopped = &GuardError{Dead: g.lost, Of: g.seen}
	}
	return g.stopped
}

// GuardError says that too many records have become dead letters.
type GuardError struct {
	First    bool  // the whole first batch was
	Dead, Of int64 // records
}

// Error says how many, and what to look at.
func (e *GuardError) Error() string {
	const remedy = "look at the reasons in the dead letters: most often a pattern, format, token or address in the config is wrong; " +
		"mend it and start again"
	if e.First {
		return fmt.Sprintf("stopped by the guard: all %d records of the first batch became dead letters; %s", e.Dead, remedy)
	}
	return fmt.Sprintf("stopped by the guard: %d of the last %d records (%.1f %%) became dead letters, more than %d %%; %s",
		e.Dead, e.Of, float64(e.Dead)*100/float64(e.Of), guardShare, remedy)
}
