package control_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// saturate keeps the lanes of w saturated for d, with attempts that take 20 ms. It returns the
// largest number in flight.
func saturate(w *model, d time.Duration, bytes int64) (most int) {
	for end := w.now + d; w.now < end; {
		for w.offer(2, bytes) {
		}
		most = max(most, len(w.running()))
		due := w.running()
		w.pass(20 * ms)
		for _, x := range due {
			w.answer(x, control.Delivered, 0)
		}
	}
	return most
}

// TestLimits checks that limits of all lanes together, and of each lane, are nearly used up and
// never exceeded. The status must name the gate that binds.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		config control.Config
		starts float64 // in 10 s
		flying int
		gate   string
	}{
		"rate":                  {control.Config{Limit: control.Limit{Rate: 100}}, 500, 0, "quota"},
		"rate of each lane":     {control.Config{LaneLimit: control.Limit{Rate: 100}}, 1500, 0, "quota"},
		"bytes":                 {control.Config{Limit: control.Limit{Bytes: 1000}}, 200, 0, "bytes"},
		"concurrency":           {control.Config{Limit: control.Limit{Concurrency: 2}}, 1000, 2, "concurrency"},
		"concurrency of a lane": {control.Config{LaneLimit: control.Limit{Concurrency: 1}}, 1500, 3, "concurrency"},
		"the least": {control.Config{Limit: control.Limit{Rate: 1000, Concurrency: 3},
			LaneLimit: control.Limit{Bytes: 500}}, 300, 3, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Timeout = -1
			w := newLanes(t, c.config, 4, 3)
			most := saturate(w, 10*sec, 50)
			if n := float64(w.m.Status().Attempts); n > 1.02*c.starts+9 || n < 0.95*c.starts {
				t.Errorf("%v attempts in 10 s, want %v", n, c.starts)
			}
			if c.flying > 0 && most > c.flying {
				t.Errorf("%d in flight at once, want at most %d", most, c.flying)
			}
			for w.offer(2, 50) {
			}
			if l := w.m.Status().Lanes[0]; l.Gate != c.gate {
				t.Errorf("the gate is %q, want %q: %+v", l.Gate, c.gate, l)
			}
			w.drain()
		})
	}
	for _, bad := range []control.Limit{{Rate: -1}, {Bytes: -1}, {Concurrency: -1}} {
		if _, err := control.New(control.Config{LaneLimit: bad}); err == nil {
			t.Errorf("New accepts %+v", bad)
		}
	}
}

// TestGrantCoversOverdue checks a worker that delivers its first batch fast and then one a second,
// so that attempts become overdue. The worker still holds them: they count against its grant.
func TestGrantCoversOverdue(t *testing.T) {
	const granted = 4
	m, err := control.New(control.Config{Window: window.Credit{}})
	if err != nil {
		t.Fatal(err)
	}
	var (
		queue   []uint64 // attempts that the worker holds, in order
		most    int
		now     time.Duration
		overdue uint64
	)
	step := func(e control.Event) {
		e.Now = now
		for _, c := range m.Step(e, nil) {
			if c.Kind == control.Start {
				queue = append(queue, c.ID)
			}
		}
	}
	step(control.Event{Kind: control.LaneUp})
	free, seq, taken := 30*ms, uint64(0), uint64(0) // free: the worker ends its current batch
	for ; now < 20*sec; now += 10 * ms {
		if now >= free && len(queue) > 0 {
			id := queue[0]
			queue, free, taken = queue[1:], now+sec, taken+1
			step(control.Event{Kind: control.Answer, ID: id, Outcome: control.Delivered,
				Report: control.Report{Epoch: 1, Credit: taken + granted, Taken: taken}})
		}
		if at, ok := m.Wake(); ok && at <= now {
			step(control.Event{Kind: control.Tick})
		}
		for m.Room() {
			seq++
			step(control.Event{Kind: control.Offer, Seq: seq, Cost: 1})
		}
		most, overdue = max(most, len(queue)), m.Status().Lanes[0].TimedOut
	}
	if most > granted+3 || overdue < 3 {
		t.Errorf("the worker holds %d attempts at once, want at most %d granted and one for each of 3 "+
			"timeouts; %d were overdue", most, granted, overdue)
	}
}
