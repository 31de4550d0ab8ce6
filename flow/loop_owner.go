package flow

import (
	"math"
	"runtime"
)

// A goroutine with an event for the loop puts it into the event queue and then runs the loop
// itself, unless another goroutine is already running it. In that case the other goroutine handles
// the event in one more round. So a goroutine that returns with a worker's response can take the
// next attempt at once, without waking another goroutine. The technique is flat combining (Hendler,
// Incze, Shavit, Tzafrir: Flat combining and the synchronization-parallelism tradeoff, SPAA 2010).

// roundsAtOnce is the maximum number of rounds that a goroutine other than that of Run handles
// before it returns to its own work.
const roundsAtOnce = 8

// runLoop makes sure that the caller's events in the event queue are processed. It may call the
// callbacks of Options.
func (l *loop[T]) runLoop() {
	if l.claims.Add(1) > 1 {
		return
	}
	returned, owner := false, true
	defer func() {
		if !returned {
			l.panicked = caught("callback", recover())
		}
		if owner {
			l.handedOver <- struct{}{}
		}
	}()
	owner = l.handleUpTo(roundsAtOnce)
	returned = true
}

// handleUpTo runs the loop until the event queue is empty, or for at most the given number of
// rounds. It reports whether the caller remains the loop owner, the only goroutine that may run the
// loop. If it does not remain the owner, any goroutine may run the loop.
func (l *loop[T]) handleUpTo(rounds int) (owner bool) {
	for range rounds {
		n := l.claims.Load()
		l.handleEvents()
		if l.done = l.ended(); l.done {
			return true
		}
		l.alarm.set(l.nextWake, l.events.start)
		if l.claims.CompareAndSwap(n, 0) {
			return false
		}
	}
	return true
}

// runToEnd runs the loop on the goroutine of Run, which has no other work, and reports whether
// everything is done.
func (l *loop[T]) runToEnd() (over bool) {
	returned := false
	defer func() {
		if !returned {
			l.panicked = caught("callback", recover())
			l.rethrow()
		}
	}()
	over = l.done || l.handleUpTo(math.MaxInt)
	returned = true
	return over
}

// rethrow repeats the panic or runtime.Goexit of a callback on the goroutine of Run.
func (l *loop[T]) rethrow() {
	switch {
	case l.panicked == nil:
	case l.panicked.Value == nil:
		runtime.Goexit()
	default:
		panic(l.panicked)
	}
}
