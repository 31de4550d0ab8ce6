//penstock:pure

package control

import (
	"cmp"
	"fmt"
)

// Waiting bounds the items that wait for another attempt. While they are below the bound, they do
// not keep the machine from requesting new items. The zero value means the defaults.
type Waiting struct {
	Cost  float64 // sum of Cost, such as records; 0 means 100,000; negative: no bound
	Bytes int64   // 0: no bound apart from Config.Replay and the owner's
}

const defaultWaiting = 100_000

func (w Waiting) withDefaults() (Waiting, error) {
	if w.Cost != w.Cost || w.Bytes < 0 {
		return w, fmt.Errorf("%v cost and %d bytes that may wait for a retry: want positive "+
			"numbers, or 0 for the default", w.Cost, w.Bytes)
	}
	w.Cost = cmp.Or(w.Cost, defaultWaiting)
	return w, nil
}

// retrying counts the items that wait for another attempt.
type retrying struct {
	amount
	deferred deferring
}

// amount is a number of items and the sums of their costs and bytes.
type amount struct {
	n     int
	cost  float64
	bytes int64
}

func (a *amount) add(it *item) {
	a.n++
	a.cost += it.cost
	a.bytes += it.bytes
}

func (a *amount) remove(it *item) {
	a.n--
	a.bytes -= it.bytes
	if a.cost -= it.cost; a.n == 0 {
		a.cost = 0 // remove the rounding errors of the sum
	}
}

func (r *retrying) add(it *item) {
	if it.account.retrying {
		return
	}
	it.account.retrying = true
	r.amount.add(it)
}

func (r *retrying) remove(it *item) {
	if !it.account.retrying {
		return
	}
	it.account.retrying = false
	if it.account.returned != notReturned {
		r.deferred.returned[it.account.returned]--
		it.account.returned = notReturned
	}
	r.amount.remove(it)
}

// full reports whether the waiting items reach the bound of Config.Waiting. These are the items
// that wait for another attempt, including deferred ones, and the later items of their keys.
func (b *backlog) full() bool {
	w, kept, behind := &b.cfg.Waiting, &b.retrying.deferred.kept, b.blockedByFailed()
	return w.Cost > 0 && b.retrying.cost+kept.cost+behind.cost >= w.Cost ||
		w.Bytes > 0 && b.retrying.bytes+kept.bytes+behind.bytes >= w.Bytes
}
