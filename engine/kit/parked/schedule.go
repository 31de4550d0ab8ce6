//penstock:pure

package parked

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"
)

// MaxAttempts bounds the number of attempts of a schedule.
const MaxAttempts = 1000

// Schedule determines the planned times of a delivery's attempts. The first attempt is due at once.
// Each wait counts from the planned time of the preceding attempt, no matter how long that attempt
// takes.
//
// Example: waits of 15s, 15s and 30s plan attempts at 0s, 15s, 30s and 60s.
type Schedule struct {
	Waits []time.Duration

	// Jitter is the largest share of a wait by which the attempt after it is delayed. Example: with
	// 0.1, an attempt after a wait of 30s is 0s to 3s late. The planned times of later attempts do
	// not move. The delay is derived from the delivery's id, so that it is the same after a
	// restart. Zero means no delay.
	Jitter float64

	// Polling is the schedule for polling asynchronous operations of the receiver.
	Polling Polling

	// Keep makes a delivery Exhausted instead of Dead when its last attempt or poll has failed. An
	// exhausted delivery is kept for an operator, who can retry it.
	Keep bool
}

// Polling is the schedule for polling an asynchronous operation of the receiver. The zero value is
// for receivers without such operations.
type Polling struct {
	Waits []time.Duration // before each poll, counted from the response to the preceding request
	Max   time.Duration   // from the acceptance of the operation to the last poll
}

// MaxPolls bounds the polls of an operation.
const MaxPolls = 10_000

// end returns the state of a delivery after its last attempt or poll has failed: Exhausted or Dead.
func (s Schedule) end() State {
	if s.Keep {
		return Exhausted
	}
	return Dead
}

// Validate returns an error if the schedule is invalid.
func (s Schedule) Validate() error {
	if len(s.Waits) >= MaxAttempts {
		return fmt.Errorf("has %d waits, at most %d are possible", len(s.Waits), MaxAttempts-1)
	}
	for i, w := range s.Waits {
		if w < time.Millisecond || w > 366*24*time.Hour {
			return fmt.Errorf("wait %d is %v; write one between 1ms and 366 days", i+1, w)
		}
	}
	if s.Jitter < 0 || s.Jitter > 1 {
		return fmt.Errorf("jitter is %v; write a share between 0 and 1", s.Jitter)
	}
	return nil
}

// Attempts returns the number of planned attempts.
func (s Schedule) Attempts() int { return len(s.Waits) + 1 }

// isLast reports whether attempt n, counted from 0, is the last one of the schedule.
func (s Schedule) isLast(n int) bool { return n >= len(s.Waits) }

// Planned returns the planned time of attempt n of a delivery, relative to the delivery's start.
// Attempts are counted from 0. If n is beyond the last attempt, Planned returns the time of the
// last one. id is the id of the delivery.
func (s Schedule) Planned(id int64, n int) time.Duration {
	n = min(n, len(s.Waits))
	var at time.Duration
	for _, w := range s.Waits[:n] {
		at += w
	}
	if n > 0 && s.Jitter > 0 {
		at += time.Duration(s.Jitter * draw(id, n) * float64(s.Waits[n-1]))
	}
	return at
}

// draw returns a pseudo-random number in [0, 1) for the jitter. It depends only on the delivery's
// id and the attempt's number.
func draw(id int64, n int) float64 {
	h := fnv.New64a()
	var key [16]byte
	binary.LittleEndian.PutUint64(key[:8], uint64(id))
	binary.LittleEndian.PutUint64(key[8:], uint64(n))
	_, _ = h.Write(key[:]) // never fails
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
