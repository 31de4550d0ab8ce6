//penstock:pure

package control

import "cmp"

// sendProbes sends one item to each lane with a breaker that needs a probe.
func (d *dispatcher) sendProbes(out []Command) []Command {
	for _, l := range d.lanes.up {
		if d.lanes.probesDue == 0 {
			break
		}
		if !l.needsProbe {
			continue
		}
		if it := d.probeItem(l); it != nil {
			d.backlog.leave(it)
			out = d.attempts.start(it, l, Probe, out)
			d.markProbe(l)
		}
	}
	return out
}

// markProbe makes the attempt that was just started at l the probe of its breaker.
func (d *dispatcher) markProbe(l *lane) {
	d.attempts.last.isProbe = true
	l.br.probe = d.attempts.last
	d.lanes.refresh(l)
}

// sendGlobalProbe sends the one probe of the global backoff when it is due.
func (d *dispatcher) sendGlobalProbe(out []Command) []Command {
	if d.lanes.global.isShut(d.now) {
		return out
	}
	l, it := d.chooseGlobalProbe()
	if l == nil {
		return out
	}
	d.backlog.leave(it)
	out = d.attempts.start(it, l, Probe, out)
	d.attempts.last.isProbe = true
	d.lanes.global.probe = d.attempts.last
	if l.br.shut() {
		d.markProbe(l)
	}
	return out
}

// probeItem returns an item for a probe of l, or nil. If l is an Ordered lane that must continue
// with a certain failed item, only that item can be the probe. Otherwise probeItem prefers an item
// that was never sent. If there is none, it takes the item with the fewest failures of the newest
// ones that may be sent again, else a suspect. The newest items have failed since the lane is down,
// and may be good. The oldest ones have failed before. A failed item that must wait before another
// attempt at l begins its wait, so that a later probe can use it.
func (d *dispatcher) probeItem(l *lane) (best *item) {
	if it := l.run.first; it != nil {
		if only, ok := it.mayStart(); ok && (only == nil || only == l) {
			if !it.failedAt(l) || it.waited {
				return it
			}
			d.backlog.leave(it)
			d.backlog.delay(it)
			return nil
		}
		d.lanes.clearFirst(it)
	}
	for i := range min(d.backlog.fresh.ready.len(), d.cfg.Ahead) {
		it := d.backlog.fresh.ready.at(i)
		if d.settlement.replay.forbids(it) {
			break
		}
		if d.probeFits(it, l) {
			return it
		}
	}
	for _, q := range []*queue{&d.backlog.retry, &d.backlog.retryWithToken} {
		for i := q.ready.len() - 1; i >= max(0, q.ready.len()-maxScan); i-- {
			it := q.ready.at(i)
			if !d.probeFits(it, l) || best != nil && !it.hasFailedLess(best) {
				continue
			}
			if it.failedAt(l) && !it.waited {
				q.ready.removeAt(i)
				d.backlog.delay(it)
				continue
			}
			best = it
		}
	}
	if best == nil && d.backlog.suspects.n > 0 {
		if it := d.backlog.suspects.pick(d.now, true); it != nil && d.probeFits(it, l) {
			best = it
		}
	}
	return best
}

// hasFailedLess reports whether the item has less evidence against it than o has or, if both have
// the same, fewer attempts.
func (it *item) hasFailedLess(o *item) bool {
	return cmp.Or(cmp.Compare(it.account.failures, o.account.failures),
		cmp.Compare(it.number, o.number)) < 0
}

func (d *dispatcher) probeFits(it *item, l *lane) bool {
	if it.firstOf != nil && it.firstOf != l || it.runsAt(l) {
		return false
	}
	if only, ok := it.mayStart(); !ok || only != nil && only != l {
		return false
	}
	return !d.lanes.policy.binds || d.lanes.wouldPick(it, l)
}

// chooseGlobalProbe chooses the lane and the item for the probe of the global backoff: of the lanes
// that have an item to send and no attempt in their window, the lane that was sent nothing for the
// longest time.
func (d *dispatcher) chooseGlobalProbe() (best *lane, it *item) {
	for _, l := range d.lanes.up {
		if l.gates.shut(d.now, forGlobalProbe) || l.win.load.n > 0 || best != nil &&
			l.lastStart >= best.lastStart {
			continue
		}
		if found := d.probeItem(l); found != nil {
			best, it = l, found
		}
	}
	return best, it
}
