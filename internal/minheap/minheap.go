//penstock:pure

// Package minheap implements the interface of package container/heap for elements that know their
// index, so that any of them can be moved or removed.
package minheap

// Element is an element of a [Heap] of elements of type T.
type Element[T any] interface {
	// Before reports whether the element comes before another one of the heap.
	Before(other T) bool
	// SetIndex stores the index of the element in the heap, or -1 when the element is removed.
	SetIndex(i int)
}

// Heap implements heap.Interface. The first element has index 0. The zero value is an empty heap.
type Heap[T Element[T]] []T

// First returns the first element, or the zero value if the heap is empty.
func (h Heap[T]) First() (first T) {
	if len(h) > 0 {
		first = h[0]
	}
	return first
}

// Len implements heap.Interface.
func (h Heap[T]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h Heap[T]) Less(i, j int) bool { return h[i].Before(h[j]) }

// Swap implements heap.Interface.
func (h Heap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].SetIndex(i)
	h[j].SetIndex(j)
}

// Push implements heap.Interface. Call heap.Push instead.
func (h *Heap[T]) Push(x any) {
	e := x.(T)
	e.SetIndex(len(*h))
	*h = append(*h, e)
}

// Pop implements heap.Interface. Call heap.Pop instead.
func (h *Heap[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	e.SetIndex(-1)
	clear((*h)[last:])
	*h = (*h)[:last]
	return e
}
