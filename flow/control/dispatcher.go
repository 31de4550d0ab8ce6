//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// dispatcher decides which item goes where next.
type dispatcher struct {
	*env
	lanes      *lanes
	group      *group
	backlog    *backlog
	settlement *settlement
	attempts   *attempts
	hold       hold
}

// hold is about items that wait for a busy lane although another one is free: dispatch expects the
// busy one to be done with them sooner.
//
// While it lasts the machine asks for more items, up to Config.Ahead, since how many wait decides
// when it ends: where the source has enough, every lane is filled to its window. An item is held as
// long at most as the lane that it was kept from would have needed for it, whatever becomes of the
// busy ones.
type hold struct {
	on   bool          // items wait so now
	till time.Duration // when the oldest of them is not held any longer
}

// plenty is so many new items in a row after which the source is taken to have no end: nothing is
// held, nor asked for ahead, until it has none once.
const plenty = 1024

// busySource is the number of consecutive offers from which a window may be narrowed for a
// measurement. With a slower source lanes are drained now and then anyway, and its items would wait
// for the measurement.
const busySource = 16

// noteDry takes in, before anything else happens, that the source had time to offer an item and did
// not.
func (m *Machine) noteDry(k Kind) {
	if m.backlog.crowd > 0 && (k == Answer || k == Tick) && m.Room() {
		m.backlog.crowd = 0
	}
}

// mayHold reports whether new items may be held: they can go to any lane, the lanes do not share a
// window, and nothing prevents the machine from asking for more.
func (d *dispatcher) mayHold() bool {
	return d.lanes.policy.holder != nil && d.backlog.keyed == 0 && d.group.win == nil &&
		d.group.phase == noPhase && d.backlog.crowd < plenty && !d.settlement.replay.full()
}

// spread starts new items, oldest first. When more wait than the busy lanes will soon be done with,
// it is the newest that goes to a lane that takes long: it would wait longest for another.
func (d *dispatcher) spread(out []Command) []Command {
	for d.backlog.fresh.able.len() > 0 && d.lanes.free > 0 && !d.group.isFull() {
		it := d.backlog.fresh.able.at(0)
		if !it.isolated() {
			return d.drain(&d.backlog.fresh, 1, out)
		}
		i, most := d.lanes.policy.holder.Place(d.now, it.cost, it.hash, d.lanes.cands)
		if i < 0 {
			break
		}
		n := d.backlog.fresh.able.len()
		if most >= 1 && !d.heldEnough(it, i) {
			if n < d.cfg.Ahead && float64(d.backlog.redo.len()+n) <= most {
				d.hold.on, d.hold.till = true, it.heldTill
				break
			}
			it = d.backlog.fresh.able.at(n - 1)
		}
		if d.settlement.replay.holds(it) {
			break
		}
		d.backlog.fresh.remove(it)
		out = d.attempts.start(it, d.lanes.up[i], Turn, out)
	}
	return out
}

// heldEnough reports whether it, the oldest, has been held for the maximum time. The time begins
// when a lane, i, first had room for it.
func (d *dispatcher) heldEnough(it *item, i int) bool {
	if it.heldTill == 0 {
		it.heldTill = d.now + dispatch.Expectation(d.lanes.cands[i], it.cost)
	}
	return d.now >= it.heldTill
}
