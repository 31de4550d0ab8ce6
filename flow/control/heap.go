//penstock:pure

package control

// timed is an element of a heap: before orders by due time, setIndex stores the element's index.
type timed[E any] interface {
	comparable
	before(E) bool
	setIndex(int)
}

// heap is a binary heap of elements that know their index, so that any of them can be removed.
type heap[E timed[E]] struct{ s []E }

func (h *heap[E]) push(e E) {
	h.s = append(h.s, e)
	h.up(len(h.s)-1, e)
}

func (h *heap[E]) removeAt(i int) {
	n := len(h.s) - 1
	e, last := h.s[i], h.s[n]
	var none E
	h.s[n] = none
	h.s = h.s[:n]
	e.setIndex(-1)
	if i < n {
		if i > 0 && last.before(h.s[(i-1)/2]) {
			h.up(i, last)
		} else {
			h.down(i, last)
		}
	}
}

func (h *heap[E]) up(i int, e E) {
	for i > 0 {
		p := (i - 1) / 2
		if !e.before(h.s[p]) {
			break
		}
		h.s[i] = h.s[p]
		h.s[i].setIndex(i)
		i = p
	}
	h.s[i] = e
	e.setIndex(i)
}

func (h *heap[E]) down(i int, e E) {
	for {
		c := 2*i + 1
		if c >= len(h.s) {
			break
		}
		if c+1 < len(h.s) && h.s[c+1].before(h.s[c]) {
			c++
		}
		if !h.s[c].before(e) {
			break
		}
		h.s[i] = h.s[c]
		h.s[i].setIndex(i)
		i = c
	}
	h.s[i] = e
	e.setIndex(i)
}

func (it *item) setIndex(i int) { it.at = i }
func (it *item) before(o *item) bool {
	if it.due != o.due {
		return it.due < o.due
	}
	return it.rank.less(&o.rank)
}
