//penstock:pure

package control

// delays is a heap of waiting items for package container/heap, with the item that is due first at
// index 0. Each item knows its index, so that any can be removed.
type delays []*item

func (h delays) Len() int { return len(h) }

func (h delays) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].rank.less(&h[j].rank)
}

func (h delays) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *delays) Push(it any) {
	it.(*item).at = len(*h)
	*h = append(*h, it.(*item))
}

// Pop implements heap.Interface.
func (h *delays) Pop() any {
	n := len(*h) - 1
	it := (*h)[n]
	it.at = -1
	(*h)[n] = nil
	*h = (*h)[:n]
	return it
}
