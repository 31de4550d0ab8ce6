//penstock:pure

package flowsim

// occurrence is an event of the simulation. If several events have the same time, the timer events
// of senders (wakes) come last. The order is that of flow.Sender, which processes available
// responses before timers.
type occurrence struct {
	kind occurs
	gen  uint32
	num  int32 // number of a worker or sender
	a    *attempt
	job  *job
}

type occurs uint8

const (
	arrives  occurs = iota // a batch of the load arrives
	reaches                // an attempt arrives at its worker
	served                 // a worker has finished a job
	answers                // a response arrives at the sender
	gaveUp                 // it is time to abandon the oldest running attempts
	changes                // an event or a pause of the scenario begins or ends
	joins                  // a sender starts
	bursts                 // the burst of the load arrives
	watches                // the age of the oldest unsettled batch is recorded
	observed               // the values for the plot are recorded
	wakes                  // a timer of a sender
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
