//penstock:pure

package control

import (
	"time"

	"github.com/penstock-io/penstock/flow/dispatch"
)

// dispatcher chooses the next items to send and their lanes.
type dispatcher struct {
	*env
	lanes      *lanes
	group      *group
	backlog    *backlog
	settlement *settlement
	attempts   *attempts
	hold       hold
}

// hold is the state of held items: they wait for a busy lane although another lane is free, because
// dispatch expects the busy lane to finish them sooner.
//
// While items are held, the machine requests more items, up to Config.Ahead. With enough waiting
// items, holding ends and every lane is filled to its window. An item is held at most as long as
// the free lane would have needed for it, even if the busy lanes take longer than expected.
type hold struct {
	active bool          // items are held now
	until  time.Duration // end of the hold of the oldest item
}

// endlessSource is the number of consecutive new items after which the source is assumed to be
// endless. No item is then held for a faster lane (see [hold]) until the source runs dry once.
const endlessSource = 1024

// busySource is the number of consecutive new items after which a source counts as busy. Only then
// may a window be narrowed for a measurement. With a slower source, lanes drain now and then
// without a measurement, and a measurement would only delay items.
const busySource = 16

// resetIfSourceDry resets backlog.consecutiveNew if the source ran dry: the machine had room before
// event k, and k is an Answer or a Tick instead of an Offer.
func (m *Machine) resetIfSourceDry(k Kind) {
	if m.backlog.consecutiveNew > 0 && (k == Answer || k == Tick) && m.Room() {
		m.backlog.consecutiveNew = 0
	}
}

// mayHold reports whether new items may be held, which means that they wait for a faster lane
// although another one is free. The dispatch policy must be able to hold items, and items must have
// no keys. The lanes must neither share a window nor take part in an experiment. The source must
// not seem endless, and the replay bound must let the machine request more items. No item is held
// while a failed item is ready to be sent, because that item would go to the free lane.
func (d *dispatcher) mayHold() bool {
	return d.lanes.policy.holder != nil && d.backlog.keyed == 0 && d.group.win == nil &&
		d.backlog.retryWithToken.ready.len() == 0 &&
		d.group.phase == noPhase && d.backlog.consecutiveNew < endlessSource &&
		!d.settlement.replay.full()
}

// sendOrHold starts new items, oldest first. A slow lane gets the newest item if the busy lanes
// would need too long for all waiting items, because the newest one would wait longest for them.
func (d *dispatcher) sendOrHold(out []Command) []Command {
	for d.backlog.fresh.ready.len() > 0 && d.lanes.free > 0 && !d.group.isFull() {
		it := d.backlog.fresh.ready.at(0)
		if !it.isolated() {
			return d.sendQueue(&d.backlog.fresh, 1, out)
		}
		i, most := d.lanes.policy.holder.ChooseOrHold(d.now, it.cost, it.hash, d.lanes.cands)
		if i < 0 {
			break
		}
		n := d.backlog.fresh.ready.len()
		if most >= 1 && !d.heldEnough(it, i) {
			if n < d.cfg.Ahead && float64(d.backlog.retry.len()+n) <= most {
				d.hold.active, d.hold.until = true, it.heldUntil
				break
			}
			it = d.backlog.fresh.ready.at(n - 1)
		}
		if d.settlement.replay.forbids(it) {
			break
		}
		d.backlog.fresh.remove(it)
		out = d.attempts.start(it, d.lanes.up[i], InOrder, out)
	}
	return out
}

// heldEnough reports whether the item, which is the oldest, has been held for the maximum time. The
// time begins when a lane (the candidate at index i) first has room for the item.
func (d *dispatcher) heldEnough(it *item, i int) bool {
	if it.heldUntil == 0 {
		it.heldUntil = d.now + dispatch.Expectation(d.lanes.cands[i], it.cost)
	}
	return d.now >= it.heldUntil
}
