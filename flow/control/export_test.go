package control

// Overlooked is the oldest item that is blocked although its turn has come; 0: there is none.
func (m *Machine) Overlooked() (seq uint64) {
	blocked := 0
	for it := m.backlog.items.oldest; it != nil; it = it.next {
		if !it.blocked {
			continue
		}
		blocked++
		if _, ok := it.turn(); ok || it.state != inFresh && it.state != inRedo {
			return it.seq
		}
	}
	if blocked != m.backlog.fresh.blocked.n+m.backlog.redo.blocked.n+m.backlog.owing.blocked.n {
		panic("blocked items are not counted right")
	}
	return 0
}

// Able is how many of the items that wait are looked at when something changes.
func (m *Machine) Able() int {
	return m.backlog.fresh.able.len() + m.backlog.redo.able.len() + m.backlog.owing.able.len()
}
