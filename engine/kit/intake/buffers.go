package intake

import (
	"math/bits"
	"sync"
)

// buffers holds the texts of submissions that all routes have settled, for new submissions.
// Otherwise most of the processor time of a busy source is spent on garbage collection. Buffers in
// the same pool have capacities with the same number of bits.
var buffers [64]sync.Pool // *[]byte

// Buffer returns an empty slice with a capacity of at least size. The memory limit of an intake
// counts sizes, not capacities. So the capacity is less than twice the size.
func Buffer(size int64) []byte {
	if b, _ := buffers[bits.Len64(uint64(size))].Get().(*[]byte); b != nil && int64(cap(*b)) >= size {
		return (*b)[:0]
	}
	return make([]byte, 0, size)
}

// recycle makes a buffer available to [Buffer]. Nothing may refer to it any more.
func recycle(b []byte) {
	if cap(b) > 0 {
		buffers[bits.Len64(uint64(cap(b)))].Put(&b)
	}
}
