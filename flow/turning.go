package flow

import (
	"math"
	"runtime"
)

// Who has something for the loop puts it into the mailbox and turns the loop itself, where nobody
// does: a runner that has its answer, and is idle from there on, takes the next attempt at once,
// and nobody has to be woken. Who finds somebody turning goes on its way: that one turns once more.
// The technique is flat combining (Hendler, Incze, Shavit, Tzafrir: Flat combining and the
// synchronization-parallelism tradeoff, SPAA 2010).

// turnsAtOnce is how many turns another goroutine than that of Run makes before it goes back to
// what it is for.
const turnsAtOnce = 8

// attend sees to it that what the caller has put into the mailbox is taken. It may call the
// callbacks of Options.
func (l *loop[T]) attend() {
	if l.turns.Add(1) > 1 {
		return
	}
	returned, still := false, true
	defer func() {
		if !returned {
			l.fallen = caught("callback", recover())
		}
		if still {
			l.handed <- struct{}{}
		}
	}()
	still = l.turnOn(turnsAtOnce)
	returned = true
}

// turnOn turns until there is no more mail: then others may turn. Else it has turned most times or
// everything is done, and the caller still is the one that turns.
func (l *loop[T]) turnOn(most int) (still bool) {
	for range most {
		n := l.turns.Load()
		l.turn()
		if l.over = l.ended(); l.over {
			return true
		}
		l.alarm.set(l.nextWake, l.box.start)
		if l.turns.CompareAndSwap(n, 0) {
			return false
		}
	}
	return true
}

// keepOn turns on the goroutine of Run, which has nothing else to do, and says whether everything
// is done.
func (l *loop[T]) keepOn() (over bool) {
	returned := false
	defer func() {
		if !returned {
			l.fallen = caught("callback", recover())
			l.fall()
		}
	}()
	over = l.over || l.turnOn(math.MaxInt)
	returned = true
	return over
}

// fall ends Run as the callback has ended the turn.
func (l *loop[T]) fall() {
	switch {
	case l.fallen == nil:
	case l.fallen.Value == nil:
		runtime.Goexit()
	default:
		panic(l.fallen)
	}
}
