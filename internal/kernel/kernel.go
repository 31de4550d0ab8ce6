//penstock:pure

// Package kernel is the common part of the simulators of discrete events: a virtual clock, a heap
// of future events, and seeded randomness.
//
// A simulator owns its kernel and defines the events. It takes one event after the other from the
// kernel and acts on it. The kernel calls no code of the simulator. A kernel is not safe for
// concurrent use.
package kernel

import (
	"math/rand/v2"
	"time"
)

// Kernel holds the future events of one run and its clock, which starts at 0. The zero Kernel is
// ready for use.
type Kernel[E any] struct {
	now       time.Duration
	scheduled uint64
	heap      []entry[E]
}

type entry[E any] struct {
	at    time.Duration
	order uint64 // among the events of one instant
	event E
}

func (e *entry[E]) before(o *entry[E]) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.order < o.order
}

// Now returns the time of the event that Next returned last.
func (k *Kernel[E]) Now() time.Duration { return k.now }

// At schedules e for a time that is not before Now. Events of one instant happen in the order of
// their scheduling.
func (k *Kernel[E]) At(at time.Duration, e E) { k.push(at, 0, e) }

// After schedules e for d after Now, as At does.
func (k *Kernel[E]) After(d time.Duration, e E) { k.push(k.now+d, 0, e) }

// AtEnd schedules e as the last event of its instant: after all events that At and After schedule
// for this instant before Next returns e.
func (k *Kernel[E]) AtEnd(at time.Duration, e E) { k.push(at, 1<<63, e) }

// Due returns the time of the next event. It reports false if there is none.
func (k *Kernel[E]) Due() (time.Duration, bool) {
	if len(k.heap) == 0 {
		return 0, false
	}
	return k.heap[0].at, true
}

// Next removes the next event and advances the clock to it. If no event is due at or before the
// given time, Next reports false and the clock stays.
func (k *Kernel[E]) Next(until time.Duration) (e E, ok bool) {
	if len(k.heap) == 0 || k.heap[0].at > until {
		return e, false
	}
	first := k.pop()
	k.now = first.at
	return first.event, true
}

// Advance moves the clock forward. No event may be due before the new time.
func (k *Kernel[E]) Advance(to time.Duration) { k.now = to }

func (k *Kernel[E]) push(at time.Duration, class uint64, event E) {
	k.scheduled++
	e := entry[E]{at, class | k.scheduled, event}
	k.heap = append(k.heap, e)
	i := len(k.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&k.heap[parent]) {
			break
		}
		k.heap[i] = k.heap[parent]
		i = parent
	}
	k.heap[i] = e
}

func (k *Kernel[E]) pop() entry[E] {
	first, n := k.heap[0], len(k.heap)-1
	last := k.heap[n]
	k.heap[n] = entry[E]{}
	k.heap = k.heap[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && k.heap[child+1].before(&k.heap[child]) {
			child++
		}
		if !k.heap[child].before(&last) {
			break
		}
		k.heap[i] = k.heap[child]
		i = child
	}
	k.heap[i] = last
	return first
}

// Rand returns the random stream with the given number, for the run with the given seed. Give each
// part of a simulation its own stream. The values of one part then do not depend on the other
// parts.
func Rand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
