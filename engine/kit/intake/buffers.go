package intake

import "sync"

// buffers holds the texts of submissions that all routes have settled, for new submissions.
// Otherwise most of the processor time of a busy source is spent on garbage collection.
var buffers sync.Pool // *[]byte

// smallBuffer is the capacity up to which a buffer is reused for a text of any size.
const smallBuffer = 4 << 10

// Buffer returns an empty slice with a capacity of at least size. The memory limit of an intake
// counts sizes, not capacities. So the capacity is at most twice the size or smallBuffer.
func Buffer(size int64) []byte {
	if b, _ := buffers.Get().(*[]byte); b != nil {
		if n := int64(cap(*b)); n >= size && n <= max(2*size, smallBuffer) {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, size)
}

// recycle makes a buffer available to [Buffer]. Nothing may refer to it any more.
func recycle(b []byte) {
	if cap(b) > 0 {
		buffers.Put(&b)
	}
}
