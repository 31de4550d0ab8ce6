package intake

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// gate enforces the memory limit of an [Intake]. It counts the reserved bytes and the bytes of data
// that some route has not settled yet (delivered, dead-lettered or dropped). The mutex of the
// Intake guards it.
type gate struct {
	max       int64
	held      int64
	growing   []*waiter    // served before waiting, because they already hold bytes
	waiting   []*waiter    // in the order of arrival
	oversized *Reservation // may grow beyond max; nil if none does
}

// waiter is a call of Reserve or Grow that waits until bytes are added to its reservation.
type waiter struct {
	r     *Reservation
	bytes int64
	err   error
	ready chan struct{} // closed when it was granted or refused
}

// Reservation is a part of the intake's memory limit, reserved for data that the source has not
// submitted yet. Only one goroutine may use it.
type Reservation struct {
	in     *Intake
	bytes  int64
	onRead func()

	request string // id of the partition; "" for that of the intake
}

// OnRead registers f, which the intake calls once, when the first route reads the submitted data. f
// must not block and must not call the intake. Call OnRead before Submit.
func (r *Reservation) OnRead(f func()) { r.onRead = f }

// Reserve waits until the given number of bytes is free within the memory limit, and reserves them.
// Concurrent calls get their bytes in the order of arrival. The error is [ErrTooLarge],
// [ErrDraining] or the cause of ctx.
func (i *Intake) Reserve(ctx context.Context, bytes int64) (*Reservation, error) {
	r := &Reservation{in: i}
	i.mu.Lock()
	if i.isRefusing() {
		i.mu.Unlock()
		return nil, ErrDraining
	}
	if bytes > i.gate.max {
		i.mu.Unlock()
		return nil, ErrTooLarge
	}
	w := &waiter{r: r, bytes: bytes, ready: make(chan struct{})}
	i.gate.waiting = append(i.gate.waiting, w)
	i.gate.grant()
	i.mu.Unlock()
	if err := i.granted(ctx, w); err != nil {
		return nil, err
	}
	return r, nil
}

// Grow adds bytes to the reservation. It waits until the bytes fit within the memory limit, or
// until this reservation is the one that may exceed the limit. Only one reservation at a time may
// do so.
func (r *Reservation) Grow(ctx context.Context, bytes int64) error {
	i := r.in
	i.mu.Lock()
	w := &waiter{r: r, bytes: bytes, ready: make(chan struct{})}
	i.gate.growing = append(i.gate.growing, w)
	i.gate.grant()
	i.mu.Unlock()
	return i.granted(ctx, w)
}

// expandStep is the minimum number of bytes by which Expand grows a reservation. A step is smaller
// only if the reservation would otherwise exceed the largest size that Expand allows for a body.
const expandStep = 256 << 10

// A request may need more memory than the limit of the intake. Its memory is then bounded by
// maxExpansion times the size of its body. For comparison, decoded OTLP log records are about ten
// times as large as their body.
const maxExpansion = 16

// Expand grows the reservation to at least body+records bytes: the size of a body, and the
// additional memory of its decoded records. The error is [ErrTooLarge] in two cases: the sum
// exceeds both the limit of the intake and maxExpansion times the body, or records exceeds
// [MaxSubmission]. Expand grows the reservation in large steps, so that most calls do nothing.
func (r *Reservation) Expand(ctx context.Context, body, records int64) error {
	bytes, most := body+records, min(max(r.in.gate.max, maxExpansion*body), body+MaxSubmission)
	switch {
	case bytes <= r.bytes: // only calls of its owner change it
		return nil
	case bytes > most:
		return ErrTooLarge
	}
	return r.Grow(ctx, min(max(bytes-r.bytes, expandStep), most-r.bytes))
}

// Release ends the reservation without submitted data. It does nothing after Submit or an earlier
// Release.
func (r *Reservation) Release() {
	i := r.in
	i.mu.Lock()
	defer i.mu.Unlock()
	r.settle(0)
}

// settle ends the reservation. In place of the reserved bytes, the given number of bytes counts
// against the memory limit: the size of the submitted data. It counts until all routes have settled
// the data (delivered, dead-lettered or dropped it). The caller holds the intake's mu.
func (r *Reservation) settle(bytes int64) {
	g := &r.in.gate
	g.held += bytes - r.bytes
	r.bytes = 0
	if g.oversized == r {
		g.oversized = nil
	}
	g.grant()
}

// granted waits until the gate has granted the bytes of w or refused w.
func (i *Intake) granted(ctx context.Context, w *waiter) error {
	err := i.await(ctx, w.ready)
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-w.ready: // possibly at the same time as ctx ended
		if w.err == nil && err != nil {
			i.gate.held -= w.bytes
			w.r.bytes -= w.bytes
			i.gate.grant()
		}
		return cmp.Or(err, w.err)
	default:
	}
	i.gate.growing = slices.DeleteFunc(i.gate.growing, func(o *waiter) bool { return o == w })
	i.gate.waiting = slices.DeleteFunc(i.gate.waiting, func(o *waiter) bool { return o == w })
	i.gate.grant() // a smaller waiter after it may fit
	return err
}

// routesEvery is the interval at which waiting callers check whether a route was removed from the
// pipeline. Data that every other route has settled then counts as settled. One caller checks on
// behalf of all waiting callers.
const routesEvery = time.Second

// await waits until ready is closed. If ctx ends earlier, await returns its cause.
func (i *Intake) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	default:
	}
	tick := time.NewTicker(routesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ready:
			return nil
		case now := <-tick.C:
			i.mu.Lock()
			if now.Sub(i.checked) > routesEvery/2 {
				i.checked = now
				i.release()
			}
			i.mu.Unlock()
		case <-ctx.Done():
			select {
			case <-ready: // at the same time
				return nil
			default:
				return context.Cause(ctx)
			}
		}
	}
}

// grant serves the waiting calls. It gives free bytes first to the growing reservations, then to
// new ones, each in order of arrival. If the first growing reservation does not fit, it may exceed
// the limit, so that its data can be submitted. Its calls then overtake those of other growing
// reservations. Only one reservation at a time may exceed the limit. The next one must wait until
// this reservation has ended and the bytes in use are within the limit again.
func (g *gate) grant() {
	for len(g.growing) > 0 {
		at := 0
		if g.held+g.growing[0].bytes > g.max {
			if g.oversized == nil && g.held <= g.max {
				g.oversized = g.growing[0].r
			}
			at = slices.IndexFunc(g.growing, func(w *waiter) bool { return w.r == g.oversized })
		}
		if at < 0 {
			return // new reservations do not overtake growing ones
		}
		w := g.growing[at]
		g.growing = slices.Delete(g.growing, at, at+1)
		g.give(w)
	}
	for len(g.waiting) > 0 && g.held+g.waiting[0].bytes <= g.max {
		w := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.give(w)
	}
}

func (g *gate) give(w *waiter) {
	g.held += w.bytes
	w.r.bytes += w.bytes
	close(w.ready)
}

// free returns the bytes of settled or withdrawn data to the gate, and grants them to waiting
// calls.
func (g *gate) free(bytes int64) {
	g.held -= bytes
	g.grant()
}

// refuse lets all waiting calls of Reserve fail with err.
func (g *gate) refuse(err error) {
	for _, w := range g.waiting {
		w.err = err
		close(w.ready)
	}
	g.waiting = nil
}
