//penstock:pure

package control

import "fmt"

// Waiting bounds the items that wait for another attempt. They do not stop the machine from asking
// for new ones below that. The zero value means the defaults.
type Waiting struct {
	Cost  float64 // sum of Cost, such as records; 0 means 100,000; negative: no bound
	Bytes int64   // 0: no bound but Config.Replay and the owner's
}

const defaultWaiting = 100_000

func (w Waiting) withDefaults() (Waiting, error) {
	if w.Cost != w.Cost || w.Bytes < 0 {
		return w, fmt.Errorf("%v cost and %d bytes that may wait for a retry: want positive numbers, or 0 for the default", w.Cost, w.Bytes)
	}
	if w.Cost == 0 {
		w.Cost = defaultWaiting
	}
	return w, nil
}

// retrying counts the items that wait for another attempt.
type retrying struct {
	n     int
	cost  float64
	bytes int64
	away  deferring
}

func (r *retrying) add(it *item) {
	if it.account.retrying {
		return
	}
	it.account.retrying = true
	r.n++
	r.cost += it.cost
	r.bytes += it.bytes
}

func (r *retrying) remove(it *item) {
	if !it.account.retrying {
		return
	}
	it.account.retrying = false
	if it.account.returned != notReturned {
		r.away.returned[it.account.returned]--
		it.account.returned = notReturned
	}
	r.n--
	r.bytes -= it.bytes
	if r.cost -= it.cost; r.n == 0 {
		r.cost = 0 // a sum of floats
	}
}

// full reports whether no more may wait.
func (r *retrying) full(w *Waiting) bool {
	held := &r.away.held
	return w.Cost > 0 && r.cost+held.cost >= w.Cost || w.Bytes > 0 && r.bytes+held.bytes >= w.Bytes
}
