//penstock:pure

// Package dispatch chooses the lane, and so the worker, to which a Sender of package flow sends the
// next item.
//
// A [Chooser] gets the state of all lanes and picks one that can take the item. It is pure and not
// safe for concurrent use. The state machine in package flow/control owns it. A [Policy] creates
// one Chooser for each state machine. The package runs under testing/synctest.
package dispatch

import (
	"math/rand/v2"
	"time"
)

// Candidate is the state of a lane for a chooser. A chooser gets a slice of all lanes that are up,
// in the order of their numbers. If Free is false, the lane cannot take the item now.
type Candidate struct {
	Lane int32
	Free bool // may take the item: its window has room, and no limit or failure excludes it
	// Full means that only the lane's window or limit keeps it from being Free.
	Full     bool
	Known    bool    // it has delivered at least once since its worker started
	InFlight int     // attempts that are not overdue
	Work     float64 // cost in flight, overdue attempts included
	Mean     float64 // mean cost of an item; 0 if not known yet
	Rate     float64 // cost per second that it delivers; 0 if not known yet
	// Service is the expected round trip, including the network, of an item of mean cost if the
	// worker has nothing else in flight. It is 0 if not known yet.
	Service    time.Duration
	Base       time.Duration // Service as measured by the lane's window; 0 if not known
	Failures   float64       // recent share of failed attempts, 0 to 1
	LastStart  time.Duration // last time it was sent an item, since the sender's start
	LastAnswer time.Duration // last answer, or last time it was sent an item with none in flight
}

// Policy is a config value that creates choosers.
type Policy interface {
	Name() string // name in configs, such as "least_completion"
	New(src rand.Source) Chooser
}

// Follower is a Chooser that keeps results that it has computed from the candidates, the states of
// the lanes. Its owner must therefore report every change of a candidate.
type Follower interface {
	Chooser
	// Changed reports that candidate i of c has changed since the last Choose. A negative i means
	// that any candidate may have changed.
	Changed(i int, c []Candidate)
}

// Chooser picks a lane.
type Chooser interface {
	// Choose returns the index in c of the lane for an item of this cost and key, or -1 if the item
	// must wait. The parameter key is a hash of the item's first key, or of its sequence number if
	// it has no key.
	Choose(now time.Duration, cost float64, key uint64, c []Candidate) int
}
