package control

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// TestProbeKeepsTheLevel checks that the level (the number in flight from which the worker refuses)
// stays known while a probe narrows the window. The worker is saturated, processes one item per
// millisecond, and each attempt takes 10 ms more. Before each probe, the level is one above the
// window's limit.
func TestProbeKeepsTheLevel(t *testing.T) {
	m, err := New(Config{Seed: 1, Window: window.Queue{}})
	if err != nil {
		t.Fatal(err)
	}
	type flight struct {
		id   uint64
		done time.Duration
	}
	var (
		out                      []Command
		running                  []flight
		now, busyUntil           time.Duration
		seq                      uint64
		probes, narrowed, events int
		was                      bool // a probe was running before the event
	)
	step := func(e Event) {
		e.Now = now
		out = m.Step(e, out[:0])
		for _, c := range out {
			if c.Kind == Start {
				busyUntil = max(busyUntil, now) + time.Millisecond
				running = append(running, flight{c.ID, busyUntil + 10*time.Millisecond})
			}
		}
		l := m.lanes.all[0]
		on := l.win.probe.on
		switch {
		case on && was:
			events++
			if int(l.win.cached.limit)+1 < l.level.from {
				narrowed++
			}
			if l.level.from == 0 {
				t.Fatalf("at %v: the level is dropped during a probe", now)
			}
		case on:
			probes++
		default:
			l.level.from = int(l.win.cached.limit) + 1
			l.level.since, l.level.wait = now, time.Hour // no trial
		}
		was = on
	}
	step(Event{Kind: LaneUp})
	for ; now < 2*time.Minute && probes < 3; now += time.Millisecond {
		for m.Room() {
			seq++
			step(Event{Kind: Offer, Seq: seq, Cost: 1, Bytes: 1})
		}
		if at, ok := m.Wake(); ok && at <= now {
			step(Event{Kind: Tick})
		}
		for len(running) > 0 && running[0].done <= now {
			id := running[0].id
			running = running[1:]
			step(Event{Kind: Answer, ID: id, Outcome: Delivered})
		}
	}
	if narrowed == 0 {
		t.Errorf("%d probes in %d events never narrowed the window below the level", probes, events)
	}
}
