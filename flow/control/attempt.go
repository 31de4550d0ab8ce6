//penstock:pure

package control

import "time"

// attempt is one delivery of one item to one lane, from Start until its outcome is concluded. Attempts are
// reused; the ID tells one use from the next.
type attempt struct {
	id       uint64
	slot     uint32
	at       int // index in Machine.overdue; -1: not in it
	item     *item
	lane     *lane
	sent     time.Duration
	deadline time.Duration
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

// slotBits is the part of an attempt's ID that finds its slot: 4 million attempts at once. The other 42 bits
// count the attempts of the machine.
const slotBits = 22

func (m *Machine) newAttempt() *attempt {
	var a *attempt
	if n := len(m.freeAttempts); n > 0 {
		a = m.freeAttempts[n-1]
		m.freeAttempts = m.freeAttempts[:n-1]
		*a = attempt{slot: a.slot, held: a.held[:0]}
	} else {
		a = &attempt{slot: uint32(len(m.attempts))}
		m.attempts = append(m.attempts, a)
	}
	m.serial++
	a.id = m.serial<<slotBits | uint64(a.slot)
	a.at = -1
	return a
}

// attempt finds the attempt with this ID; nil: there is none, or its answer has come.
func (m *Machine) attempt(id uint64) *attempt {
	slot := id & (1<<slotBits - 1)
	if slot >= uint64(len(m.attempts)) {
		return nil
	}
	if a := m.attempts[slot]; a.id == id && !a.answered && a.item != nil {
		return a
	}
	return nil
}

func (m *Machine) freeAttempt(a *attempt) {
	a.id, a.item, a.lane, a.next, a.earlier, a.later = 0, nil, nil, nil, nil, nil
	m.freeAttempts = append(m.freeAttempts, a)
}
