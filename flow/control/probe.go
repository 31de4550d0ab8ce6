//penstock:pure

package control

// sendProbes sends one item to each lane with a breaker that needs a probe.
func (d *dispatcher) sendProbes(out []Command) []Command {
	for _, l := range d.lanes.up {
		if d.lanes.ready == 0 {
			break
		}
		if !l.ready {
			continue
		}
		if it := d.probeItem(l); it != nil {
			d.backlog.leave(it)
			out = d.attempts.start(it, l, Probe, out)
			d.opening(l)
		}
	}
	return out
}

// opening makes the attempt that was just started at l the probe of its breaker.
func (d *dispatcher) opening(l *lane) {
	l.br.probe = d.attempts.last
	d.lanes.refresh(l)
}

// sendScout sends the one probe of the global backoff when it is due.
func (d *dispatcher) sendScout(out []Command) []Command {
	if d.lanes.global.isShut(d.now) {
		return out
	}
	l, it := d.scout()
	if l == nil {
		return out
	}
	d.backlog.leave(it)
	out = d.attempts.start(it, l, Probe, out)
	d.lanes.global.probe = d.attempts.last
	if l.br.shut() {
		d.opening(l)
	}
	return out
}

// probeItem returns an item for a probe of l: one that was never sent, else the one with the fewest
// failures that may be sent again, else a suspect. Failed items that must wait before another
// attempt at l begin their waits, so that a later probe can use them.
func (d *dispatcher) probeItem(l *lane) (best *item) {
	if it := l.run.first; it != nil {
		if only, ok := it.turn(); ok && (only == nil || only == l) {
			if !it.failedAt(l) || it.waited {
				return it
			}
			d.backlog.leave(it)
			d.backlog.delay(it)
			return nil
		}
		d.lanes.unfirst(it)
	}
	for i := range min(d.backlog.fresh.able.len(), d.cfg.Ahead) {
		it := d.backlog.fresh.able.at(i)
		if d.settlement.replay.holds(it) {
			break
		}
		if d.probeFits(it, l) {
			return it
		}
	}
	for _, q := range []*queue{&d.backlog.redo, &d.backlog.owing} {
		for i := 0; i < min(q.able.len(), maxScan); i++ {
			it := q.able.at(i)
			if !d.probeFits(it, l) || best != nil && it.account.failures >= best.account.failures {
				continue
			}
			if it.failedAt(l) && !it.waited {
				q.able.removeAt(i)
				i--
				d.backlog.delay(it)
				continue
			}
			best = it
		}
	}
	if best == nil && d.backlog.apart.n > 0 {
		if it := d.backlog.apart.pick(d.now, true); it != nil && d.probeFits(it, l) {
			best = it
		}
	}
	return best
}

func (d *dispatcher) probeFits(it *item, l *lane) bool {
	if it.firstOf != nil && it.firstOf != l || it.runsAt(l) {
		return false
	}
	if only, ok := it.turn(); !ok || only != nil && only != l {
		return false
	}
	return !d.lanes.policy.binds || d.lanes.bound(it, l)
}

// scout chooses the probe of the global backoff: of the lanes for which there is an item, the lane
// that was sent nothing for the longest time.
func (d *dispatcher) scout() (best *lane, it *item) {
	for _, l := range d.lanes.up {
		if l.gates.shut(d.now, forScout) || l.win.load.n > 0 || best != nil && l.used >= best.used {
			continue
		}
		if found := d.probeItem(l); found != nil {
			best, it = l, found
		}
	}
	return best, it
}
