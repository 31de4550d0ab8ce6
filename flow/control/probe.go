//penstock:pure

package control

// sendProbes gives each lane that is to be tried again one item.
func (m *Machine) sendProbes(out []Command) []Command {
	for _, l := range m.up {
		if m.ready == 0 {
			break
		}
		if !l.ready {
			continue
		}
		if it := m.probeItem(l); it != nil {
			m.leave(it)
			out = m.start(it, l, Probe, out)
			m.opening(l)
		}
	}
	return out
}

// opening marks the attempt that was just started at l as the one that decides about its breaker.
func (m *Machine) opening(l *lane) {
	l.br.probe = m.last
	m.refresh(l)
}

// sendScout sends the one probe of the global backoff when it is due.
func (m *Machine) sendScout(out []Command) []Command {
	if m.global.probe != nil || m.now < m.global.until {
		return out
	}
	l, it := m.scout()
	if l == nil {
		return out
	}
	m.leave(it)
	out = m.start(it, l, Probe, out)
	m.global.probe = m.last
	if l.br.shut() {
		m.opening(l)
	}
	return out
}

// probeItem finds an item for a probe of l: one that never failed, else the one with the least
// evidence against it of those that are due. It starts the waits that failed items still owe, so
// that they can be probed with later.
func (m *Machine) probeItem(l *lane) (best *item) {
	if it := l.run.first; it != nil {
		if only, ok := it.turn(); ok && (only == nil || only == l) {
			if !it.failedAt(l) || it.waited {
				return it
			}
			m.leave(it)
			m.delay(it)
			return nil
		}
		m.unfirst(it)
	}
	for i := range min(m.fresh.able.len(), m.cfg.Ahead) {
		it := m.fresh.able.at(i)
		if m.replayHolds(it) {
			break
		}
		if m.probeFits(it, l) {
			return it
		}
	}
	for _, q := range []*queue{&m.redo, &m.owing} {
		for i := 0; i < min(q.able.len(), maxScan); i++ {
			it := q.able.at(i)
			if !m.probeFits(it, l) || best != nil && it.account.failures >= best.account.failures {
				continue
			}
			if it.failedAt(l) && !it.waited {
				q.able.removeAt(i)
				i--
				m.delay(it)
				continue
			}
			best = it
		}
	}
	if best == nil && m.apart.n > 0 {
		if it := m.apart.pick(m.now, true); it != nil && m.probeFits(it, l) {
			best = it
		}
	}
	return best
}

func (m *Machine) probeFits(it *item, l *lane) bool {
	if it.firstOf != nil && it.firstOf != l || it.runsAt(l) {
		return false
	}
	if only, ok := it.turn(); !ok || only != nil && only != l {
		return false
	}
	return !m.binds || m.bound(it, l)
}
