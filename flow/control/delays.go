//penstock:pure

package control

import "github.com/penstock-io/penstock/internal/minheap"

// delays is a heap of waiting items, with the item that is due first at index 0.
type delays = minheap.Heap[*item]

// Before implements minheap.Element.
func (it *item) Before(other *item) bool {
	if it.due != other.due {
		return it.due < other.due
	}
	return it.rank.less(&other.rank)
}

// SetIndex implements minheap.Element.
func (it *item) SetIndex(i int) { it.heapIndex = i }
