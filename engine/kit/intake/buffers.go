package intake

import (
	"math/bits"
	"sync"
)

// buffers holds memory that is no longer used, for new submissions. Without this reuse, a busy
// source spends much of its processor time on garbage collection. Pool n has the buffers with a
// capacity from 2^(n-1) to 2^n - 1 bytes.
var buffers [64]sync.Pool // *[]byte

// Buffer returns an empty slice with a capacity of at least size and less than twice the size. The
// upper bound matters because the memory limit of an intake counts sizes, not capacities.
func Buffer(size int64) []byte {
	b, _ := buffers[bits.Len64(uint64(size))].Get().(*[]byte)
	if b != nil && int64(cap(*b)) >= size {
		return (*b)[:0]
	}
	return make([]byte, 0, size)
}

// recycle makes b available to [Buffer]. The caller must not use b any more.
func recycle(b []byte) {
	if cap(b) > 0 {
		buffers[bits.Len64(uint64(cap(b)))].Put(&b)
	}
}
