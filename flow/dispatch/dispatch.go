//penstock:pure

// Package dispatch chooses which worker gets the next item.
//
// A [Chooser] sees every lane that may take the item now and picks one. It is pure and not safe for
// concurrent use; its owner is the machine in package control. One [Policy] makes one Chooser for
// each machine.
package dispatch

import (
	"math/rand/v2"
	"time"
)

// Candidate is a lane as a chooser sees it. The slice holds all lanes that are up, in the order of
// their numbers; those with Free false cannot take the item now.
type Candidate struct {
	Lane     int32
	Free     bool          // gate open, room in the window, not excluded for this item
	Full     bool          // it takes none now for one reason only: its window or its limit is used up
	Known    bool          // it has answered at least once since it came up
	InFlight int           // attempts that are not overdue
	Work     float64       // cost in flight, overdue attempts included
	Mean     float64       // cost of an item on the average; 0: not known yet
	Rate     float64       // cost per second that it delivers; 0: not known yet
	Service  time.Duration // one item of mean cost on a drained worker, network included; 0: not known yet
	Base     time.Duration // the same as its window has measured it, where it does; 0: not known
	Failures float64       // share of failed attempts, recent, 0 to 1
	Used     time.Duration // when it was last sent anything, since the sender's start
	Peak     time.Duration // peak-sensitive mean round trip, errors included, at Answered; 0: not known yet
	Answered time.Duration // when it last answered, since the sender's start
	Heard    time.Duration // the same, or when it was sent something while it had nothing in flight
}

// Policy is a config value that makes choosers.
type Policy interface {
	Name() string // as in a config: "least_completion", "round_robin", "hash"
	New(src rand.Source) Chooser
}

// Follower is a Chooser that keeps what it has computed of the candidates, once it is told of every
// change.
type Follower interface {
	Chooser
	// Changed says that the ith candidate of c is another than at the last Choose; below 0: any of
	// them may be.
	Changed(i int, c []Candidate)
}

// Chooser picks a lane.
type Chooser interface {
	// Choose returns the index in c of the lane that gets an item of this cost and key, or -1: it
	// waits. key is a hash of the item's first key, or of its sequence number where it has none.
	Choose(now time.Duration, cost float64, key uint64, c []Candidate) int
}
