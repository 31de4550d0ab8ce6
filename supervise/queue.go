//penstock:pure

package supervise

import "container/heap"

// queue is a heap of children, ordered by their due times (the field at). Children with equal times
// are in the order in which they were added. A child is in at most one queue.
type queue []*child

// Len implements heap.Interface, as do the next four.
func (q queue) Len() int { return len(q) }

// Less compares times, then the children's order.
func (q queue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}

// Swap swaps two children.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i, j
}

// Push appends a child.
func (q *queue) Push(c any) {
	x := c.(*child)
	x.pos = len(*q)
	*q = append(*q, x)
}

// Pop removes the last child.
func (q *queue) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	c.pos = -1
	return c
}

func (q *queue) put(c *child)  { heap.Push(q, c) }
func (q *queue) drop(c *child) { heap.Remove(q, c.pos) }

func (q queue) first() *child {
	if len(q) == 0 {
		return nil
	}
	return q[0]
}
