//penstock:pure

package control

import "time"

// deadlines is a heap of the attempts that can become overdue, the first of them at 0. Each attempt
// knows its index, so that any can be removed. It is asked at every delivery, so that it keeps the
// times beside each other and has four children to a node.
type deadlines []deadline

type deadline struct {
	at time.Duration
	a  *attempt
}

const fanout = 4

func (d deadline) before(o deadline) bool {
	return d.at < o.at || d.at == o.at && d.a.id < o.a.id
}

func (h *deadlines) push(a *attempt) {
	*h = append(*h, deadline{})
	at := a.deadline
	if a.soon > 0 {
		at = min(at, a.soon)
	}
	h.up(len(*h)-1, deadline{at, a})
}

// removeAt takes the ith out. The hole goes down to a leaf, since the last one nearly always
// belongs there.
func (h *deadlines) removeAt(i int) {
	s := *h
	n := len(s) - 1
	last := s[n]
	s[i].a.at = -1
	s[n] = deadline{}
	s = s[:n]
	*h = s
	if i == n {
		return
	}
	for {
		child := fanout*i + 1
		if child >= n {
			break
		}
		first, d := child, s[child]
		for c, o := range s[child+1 : min(child+fanout, n)] {
			if o.before(d) {
				first, d = child+1+c, o
			}
		}
		s[i] = d
		d.a.at = i
		i = first
	}
	h.up(i, last)
}

// up moves the hole at i to where d belongs.
func (h *deadlines) up(i int, d deadline) {
	s := *h
	for i > 0 {
		parent := (i - 1) / fanout
		if !d.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		s[i].a.at = i
		i = parent
	}
	s[i] = d
	d.a.at = i
}
