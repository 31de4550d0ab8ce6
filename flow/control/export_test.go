package control

// Overlooked returns the oldest item that is blocked although its turn has come, or 0.
func (m *Machine) Overlooked() (seq uint64) {
	blocked := 0
	for it := m.backlog.items.oldest; it != nil; it = it.next {
		if !it.blocked {
			continue
		}
		blocked++
		if _, ok := it.mayStart(); ok || it.state != inFresh && it.state != inRetry {
			return it.seq
		}
	}
	if blocked != m.backlog.fresh.blocked.n+m.backlog.retry.blocked.n+m.backlog.retryWithToken.blocked.n {
		panic("blocked items are not counted right")
	}
	return 0
}

// Able returns the number of waiting items that are not blocked by the order of their keys. One
// event may have to check all of them.
func (m *Machine) Able() int {
	return m.backlog.fresh.ready.len() + m.backlog.retry.ready.len() +
		m.backlog.retryWithToken.ready.len()
}
