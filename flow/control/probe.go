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

// probeItem finds an item for a probe of l: a new one, since it has waited least, else one that is to be sent
// again, else one that waits for its retry.
func (m *Machine) probeItem(l *lane) *item {
	if it := l.first; it != nil {
		if only, ok := it.turn(); ok && (only == nil || only == l) {
			return it
		}
		m.unfirst(it)
	}
	if it := m.probeAmong(l, false); it != nil || m.suspects == 0 {
		return it
	}
	return m.probeAmong(l, true) // what may be to blame itself, where there is nothing else
}

// probeAmong finds an item for a probe of l among suspects or among the others.
func (m *Machine) probeAmong(l *lane, suspects bool) *item {
	for i := range min(m.fresh.able.len(), m.cfg.Ahead) {
		it := m.fresh.able.at(i)
		if m.replayHolds(it) {
			break
		}
		if m.probeFits(it, l, suspects) {
			return it
		}
	}
	for i := range min(m.redo.able.len(), maxScan) {
		if it := m.redo.able.at(i); m.probeFits(it, l, suspects) {
			return it
		}
	}
	for i := range min(len(m.delayed.s), maxScan) {
		if it := m.delayed.s[i]; m.probeFits(it, l, suspects) {
			return it
		}
	}
	return nil
}

func (m *Machine) probeFits(it *item, l *lane, suspects bool) bool {
	if it.account.suspect != suspects || it.firstOf != nil && it.firstOf != l || it.runsAt(l) {
		return false
	}
	if only, ok := it.turn(); !ok || only != nil && only != l {
		return false
	}
	return !m.binds || m.bound(it, l)
}
