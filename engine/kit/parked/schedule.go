//penstock:pure

package parked

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"
)

// MaxAttempts bounds a schedule.
const MaxAttempts = 1000

// Schedule is the planned times of a delivery's attempts. The first is at once; each wait counts
// from the planned time of the attempt before, whatever that attempt took.
//
// Waits of 15s, 15s, 30s plan attempts at 0s, 15s, 30s and 60s.
type Schedule struct {
	Waits []time.Duration

	// Jitter delays each attempt but the first by a share of the wait before it, between zero and
	// Jitter. It is drawn from the delivery's id, so that a restart changes nothing. Zero means
	// exact times.
	Jitter float64

	// Polling is the schedule of polls of an asynchronous operation.
	Polling Polling

	// Keep means that a delivery becomes Exhausted, and not Dead, at the end of its schedule.
	Keep bool
}

// Polling is when an asynchronous operation is polled. The zero value is for receivers that have
// none.
type Polling struct {
	Waits []time.Duration // before each poll, from the response before it
	Max   time.Duration   // from the acceptance of the operation to the last poll
}

// MaxPolls bounds the polls of an operation.
const MaxPolls = 10_000

// end is the state of a delivery at the end of its schedule.
func (s Schedule) end() State {
	if s.Keep {
		return Exhausted
	}
	return Dead
}

// Validate returns an error if the schedule cannot be followed.
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

// Attempts returns how many attempts are planned.
func (s Schedule) Attempts() int { return len(s.Waits) + 1 }

// isLast reports whether attempt n, counted from 0, has no successor.
func (s Schedule) isLast(n int) bool { return n >= len(s.Waits) }

// Planned returns the time of attempt n, counted from 0, since the start of delivery id. Beyond the
// last attempt it is that of the last.
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

// draw returns a number in [0, 1) that belongs to an attempt.
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
