//penstock:pure

package flowsim

// occurrence is an event of the kernel. Machines' ticks are last among occurrences at the same
// time, because flow.Sender also processes available outcomes before it ticks a machine.
type occurrence struct {
	kind occurs
	gen  uint32
	num  int32 // worker or sender
	a    *attempt
	job  *job
}

type occurs uint8

const (
	arrives  occurs = iota // batches, by the load
	reaches                // an attempt at its worker
	served                 // a job is done
	answers                // a response arrives at the sender
	gaveUp                 // the time of the oldest attempt has expired
	changes                // an event or pause begins or ends
	joins                  // a sender begins
	bursts                 // the load's burst
	watches                // the watermark's age is recorded
	observed               // the plot's figures are recorded
	wakes                  // a machine has requested a tick
)

// fifo is a queue that reuses its memory.
type fifo[T any] struct {
	s    []T
	head int
}

func (q *fifo[T]) len() int  { return len(q.s) - q.head }
func (q *fifo[T]) first() *T { return &q.s[q.head] }
func (q *fifo[T]) all() []T  { return q.s[q.head:] }
func (q *fifo[T]) add(x T)   { q.s = append(q.s, x) }
func (q *fifo[T]) empty()    { clear(q.s); q.s, q.head = q.s[:0], 0 }
func (q *fifo[T]) take() (x T) {
	var none T
	x, q.s[q.head] = q.s[q.head], none
	if q.head++; q.head == len(q.s) {
		q.s, q.head = q.s[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.s) {
		n := copy(q.s, q.s[q.head:])
		clear(q.s[n:])
		q.s, q.head = q.s[:n], 0
	}
	return x
}
