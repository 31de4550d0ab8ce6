package flow

import "time"

// alarm is the timer that wakes the event loop for its next task (see loop.expire). It may fire
// earlier than needed, because set never moves it to a later time.
type alarm struct {
	timer *time.Timer
	at    time.Duration
	armed bool
}

func newAlarm() *alarm {
	t := time.NewTimer(0)
	t.Stop()
	return &alarm{timer: t}
}

// set makes the alarm fire no later than the time that next returns.
func (a *alarm) set(next func() (time.Duration, bool), start time.Time) {
	at, ok := next()
	if !ok || a.armed && a.at <= at {
		return
	}
	a.timer.Reset(at - time.Since(start))
	a.at, a.armed = at, true
}
