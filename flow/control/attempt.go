//penstock:pure

package control

import "time"

// attempt is one delivery of one item to one lane, from Start until its outcome is concluded.
// Attempts are reused; the ID tells one use from the next.
type attempt struct {
	id       uint64
	slot     uint32
	at       int // index in Machine.overdue; -1: not in it
	item     *item
	lane     *lane
	sent     time.Duration
	deadline time.Duration
	soon     time.Duration // before that, when it takes longer than nearly all do; 0: that has passed, or does not matter
	cost     float64
	ahead    float64 // cost in flight at the lane just after it was sent
	progress float64 // cost that the lane had delivered when it was sent
	epoch    uint32  // of the window
	level    int     // attempts in flight at the lane just after it was sent, without those that are probably lost
	limited  bool    // the window was the limit
	overdue  bool
	hedgeAt  time.Duration // no twin is sent before
	excused  bool          // its deadline passed while this process was held up
	canceled bool
	twin     bool // a second one beside the first
	paid     bool // took a token of the budget
	died     bool // the worker died of its item
	apart    bool // of a suspect: it takes no place in the window
	charged  bool // its failure has been weighed, see Machine.charge
	partial  bool // its answer, a Split, settled a part of it
	late     bool // it was overdue when it was answered

	// What its lane has out.
	earlier, later *attempt // the ones sent before it and after it
	listed         bool     // it is out and not overdue
	suspect        bool     // later answers have overtaken it by long
	lost           float64  // cost of the lane's suspects when it was sent
	away           bool     // see stuck

	// The group.
	together   float64 // cost in flight in all lanes just after it was sent
	groupEpoch uint32  // of the group's window
	crowded    bool    // the group's window was the limit

	// Ordered lanes.
	ordered    bool
	answered   bool // but an earlier one of the run is not: its conclusion waits
	outcome    Outcome
	after      time.Duration
	run, place uint32
	next       *attempt // in the lane's run
	held       []*item  // delivered pieces of its item, which settle when it is concluded
}

// slotBits is the part of an attempt's ID that finds its slot: 4 million attempts at once. The
// other 42 bits count the attempts of the machine.
const slotBits = 22

// attempts holds the attempts that are out, and those to be used again.
type attempts struct {
	slots  []*attempt
	free   []*attempt
	serial uint64
}

// add returns a new attempt.
func (t *attempts) add() *attempt {
	var a *attempt
	if n := len(t.free); n > 0 {
		a = t.free[n-1]
		t.free = t.free[:n-1]
		*a = attempt{slot: a.slot, held: a.held[:0]}
	} else {
		a = &attempt{slot: uint32(len(t.slots))}
		t.slots = append(t.slots, a)
	}
	t.serial++
	a.id = t.serial<<slotBits | uint64(a.slot)
	a.at = -1
	return a
}

// find returns the attempt with this ID, and nil if there is none or its answer has come.
func (t *attempts) find(id uint64) *attempt {
	slot := id & (1<<slotBits - 1)
	if slot >= uint64(len(t.slots)) {
		return nil
	}
	if a := t.slots[slot]; a.id == id && !a.answered && a.item != nil {
		return a
	}
	return nil
}

// remove frees a, which is over.
func (t *attempts) remove(a *attempt) {
	a.id, a.item, a.lane, a.next, a.earlier, a.later = 0, nil, nil, nil, nil, nil
	t.free = append(t.free, a)
}
