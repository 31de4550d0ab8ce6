//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// hold is about items that wait for a busy lane although another one is free: dispatch expects the
// busy one to be done with them sooner.
//
// While it lasts the machine asks for more items, up to Config.Ahead, since how many wait decides
// when it ends: where the source has enough, every lane is filled to its window. An item is held as
// long at most as the lane that it was kept from would have needed for it, whatever becomes of the
// busy ones.
type hold struct {
	on    bool          // items wait so now
	till  time.Duration // when the oldest of them is not held any longer
	crowd int           // new items that were started since the source last had none for a machine that had room
}

// plenty is so many new items in a row after which the source is taken to have no end: nothing is
// held, nor asked for ahead, until it has none once.
const plenty = 1024

// busySource is how many in a row make it worth while to narrow a window for a measurement: where
// the source has nothing in between, lanes are drained now and then anyway, and what is offered
// would wait for it.
const busySource = 16

// noteDry takes in, before anything else happens, that the source had time to offer an item and did
// not.
func (m *Machine) noteDry(k Kind) {
	if m.hold.crowd > 0 && (k == Answer || k == Tick) && m.Room() {
		m.hold.crowd = 0
	}
}

// mayHold says whether new items may be held: they can go to any lane, the lanes are on their own,
// and nothing keeps the machine from asking for more.
func (m *Machine) mayHold() bool {
	return m.holder != nil && m.keyed == 0 && m.group.win == nil && m.group.phase == noPhase && m.hold.crowd < plenty &&
		!m.replayFull()
}

// spread starts new items, oldest first. When more wait than the busy lanes will soon be done with,
// it is the newest that goes to a lane that takes long: it would wait longest for another.
func (m *Machine) spread(out []Command) []Command {
	for m.fresh.able.len() > 0 && m.free > 0 && !m.groupFull() {
		it := m.fresh.able.at(0)
		if !it.isolated() {
			return m.drain(&m.fresh, 1, out)
		}
		i, most := m.holder.Place(m.now, it.cost, it.hash, m.cands)
		if i < 0 {
			break
		}
		n := m.fresh.able.len()
		if most >= 1 && !m.heldEnough(it, i) {
			if n < m.cfg.Ahead && float64(m.redo.len()+n) <= most {
				m.hold.on, m.hold.till = true, it.heldTill
				break
			}
			it = m.fresh.able.at(n - 1)
		}
		if m.replayHolds(it) {
			break
		}
		m.fresh.remove(it)
		out = m.start(it, m.up[i], Turn, out)
	}
	return out
}

// heldEnough says whether it, the oldest, has been held for as long as it may be. The time begins
// when it first could go to a lane, i.
func (m *Machine) heldEnough(it *item, i int) bool {
	if it.heldTill == 0 {
		it.heldTill = m.now + dispatch.Expectation(m.cands[i], it.cost)
	}
	return m.now >= it.heldTill
}
