package parked_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// polled is the schedule in the variable payment, plus polling: the receiver starts an operation,
// which is polled after 10s, 20s, 40s and then each minute, for at most an hour.
var polled = func() parked.Schedule {
	s := payment
	s.Polling = parked.Polling{
		Waits: []time.Duration{10 * second, 20 * second, 40 * second}, Max: hour,
	}
	for range 60 {
		s.Polling.Waits = append(s.Polling.Waits, minute)
	}
	return s
}()

// started is a delivery that the receiver has answered with an operation.
func started(t *testing.T, s parked.Schedule, retryAfter time.Duration) parked.Progress {
	t.Helper()
	p := parked.Progress{ID: 7, Start: start, Due: start}
	p = step(t, p, s, parked.Begin, start, 0)
	p, err := p.Started(
		s,
		parked.Operation{Location: "https://m/op/1", Host: "m:443"},
		start,
		retryAfter,
	)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPolls checks that each poll is made when it is due, for an operation that never ends.
func TestPolls(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*parked.Schedule)
		retryAfter time.Duration
		first      []time.Duration
		polls      int
		last       time.Duration
		state      parked.State
	}{
		"until max": {
			func(*parked.Schedule) {}, 0,
			[]time.Duration{10 * second, 30 * second, 70 * second, 130 * second}, 62, hour, parked.Dead,
		},
		"kept": {
			func(s *parked.Schedule) { s.Keep = true }, 0, []time.Duration{10 * second}, 62, hour, parked.Exhausted,
		},
		"policy ends": {
			func(s *parked.Schedule) { s.Polling.Waits = s.Polling.Waits[:3] }, 0,
			[]time.Duration{10 * second, 30 * second, 70 * second}, 3, 70 * second, parked.Dead,
		},
		"Retry-After": {
			func(*parked.Schedule) {}, 25 * minute,
			[]time.Duration{25 * minute, 50 * minute, hour}, 3, hour, parked.Dead,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := polled
			c.change(&s)
			p := started(t, s, c.retryAfter)
			var at []time.Duration
			for p.State == parked.Waiting {
				now := p.Due
				at = append(at, now.Sub(start))
				p = step(t, p, s, parked.Begin, now, 0)
				p = step(t, p, s, parked.Pending, now, c.retryAfter)
			}
			if len(at) != c.polls || !slices.Equal(at[:len(c.first)], c.first) ||
				at[len(at)-1] != c.last ||
				p.State != c.state {
				t.Errorf("polled at %v, then %v; want %d polls, first %v, last %v, then %v",
					at, p.State, c.polls, c.first, c.last, c.state)
			}
		})
	}
}

func TestPollEvents(t *testing.T) {
	p := started(t, polled, 0)
	if _, err := p.Started(polled, p.Operation, start, 0); err == nil {
		t.Error("an operation was started while another one is polled")
	}
	if n := p.Overtaken(polled, start.Add(48*hour), 0); n != 0 {
		t.Errorf("%d polls were overtaken", n)
	}
	passed := step(t, p, polled, parked.Skip, start.Add(minute), 15*second)
	if passed.Operation.Polls != 0 || !passed.Due.Equal(start.Add(75*second)) {
		t.Errorf("after a poll that was passed over: %+v", passed)
	}
	p = step(t, p, polled, parked.Begin, start.Add(10*second), 0)
	if _, err := p.Next(polled, parked.Refuse, start, 0); err == nil {
		t.Error("a poll was refused as an attempt is")
	}
	for e, want := range map[parked.Event]parked.State{
		parked.Accept: parked.Done, parked.Stop: parked.Dead, parked.Abort: parked.Waiting,
		parked.Cancel: parked.Cancelled,
	} {
		if next := step(t, p, polled, e, start, 0); next.State != want || !next.Polled() {
			t.Errorf("%v: %+v, want state %v of the same operation", e, next, want)
		}
	}
	p = step(t, p, polled, parked.Abort, start.Add(11*second), 0)
	p = step(t, p, polled, parked.Retry, start.Add(12*second), 0)
	p = step(t, p, polled, parked.Begin, start.Add(12*second), 0)
	p = step(t, p, polled, parked.Pending, start.Add(12*second), 0)
	if p.Operation.Polls != 0 || p.Forced || !p.Due.Equal(start.Add(22*second)) {
		t.Errorf("after a poll that an operator has asked for: %+v", p)
	}
	p.Due = start.Add(hour)
	if _, err := p.Next(polled, parked.Skip, p.Due, 0); err == nil || !p.IsLast(polled) {
		t.Error("the last poll was passed over")
	}
}

// TestExhausted checks that a delivery can be kept for an operator at the end of its schedule. Each
// attempt that the operator then starts is in addition to the schedule.
func TestExhausted(t *testing.T) {
	kept := payment
	kept.Keep = true
	p := parked.Progress{ID: 7, Start: start, Due: start}
	now := start
	for p.State == parked.Waiting {
		now = p.Due
		p = step(t, p, kept, parked.Begin, now, 0)
		p = step(t, p, kept, parked.Refuse, now, 0)
	}
	if p.State != parked.Exhausted || now.Sub(start) != 24*hour+4*minute {
		t.Fatalf("%+v after %v", p, now.Sub(start))
	}
	if _, err := p.Next(kept, parked.Begin, now, 0); !errors.As(err, new(*parked.TransitionError)) {
		t.Errorf("an attempt of an exhausted delivery: %v", err)
	}
	for range 2 {
		now = now.Add(hour)
		p = step(t, p, kept, parked.Retry, now, 0)
		if p.State != parked.Waiting || !p.Due.Equal(now) ||
			p.Overtaken(kept, now.Add(hour), 0) != 0 {
			t.Fatalf("after retry: %+v", p)
		}
		p = step(t, p, kept, parked.Begin, now, 0)
		if p = step(t, p, kept, parked.Refuse, now, 0); p.State != parked.Exhausted {
			t.Fatalf("after another refusal: %+v", p)
		}
	}
	if p = step(t, p, kept, parked.Cancel, now, 0); p.State != parked.Cancelled {
		t.Errorf("after cancel: %+v", p)
	}
}

// TestOperationSurvivesReopening checks that a reopened store still has the operation of a delivery
// and the host to which it has moved. It also checks that a record can have its own schedule.
func TestOperationSurvivesReopening(t *testing.T) {
	at := path(t)
	s := open(t, at, 0)
	r := row(1)
	r.Waits = []time.Duration{minute, 90 * second}
	add(t, s, []parked.Row{r, row(2)})
	d := find(t, s, "order-1")
	if !slices.Equal(d.Schedule(payment).Waits, r.Waits) ||
		len(find(t, s, "order-2").Schedule(payment).Waits) != 15 {
		t.Errorf("schedule %v, want %v", d.Schedule(payment).Waits, r.Waits)
	}
	p := step(t, d.Progress, polled, parked.Begin, start, 0)
	p, err := p.Started(
		polled,
		parked.Operation{Location: "https://ops.example/1", Host: "ops.example:443"},
		start,
		0,
	)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := s.Record(t.Context(), []parked.Change{{Delivery: d, To: p}})
	if err != nil || len(moved) != 1 || moved[0].Name != "ops.example:443" ||
		!moved[0].Due.Equal(start.Add(10*second)) {
		t.Errorf("moved %+v, %v", moved, err)
	}
	if err := s.Retry(t.Context(), d.ID, start.Add(second)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, at, 0)
	d = find(t, s, "order-1")
	want := parked.Operation{
		Location: "https://ops.example/1",
		Host:     "ops.example:443",
		Accepted: start.Local(),
	}
	if d.Operation != want || !d.Forced || d.Host != want.Host || !d.Due.Equal(start.Add(second)) {
		t.Errorf("reopened: %+v, want operation %+v", d.Progress, want)
	}
	due, err := s.Due(t.Context(), moved[0].ID, start.Add(second), 10)
	if err != nil || len(due) != 1 || due[0].ID != d.ID {
		t.Errorf("%d deliveries are due at the operation's host, %v", len(due), err)
	}
}

// TestExhaustedInStore checks that an exhausted delivery stays parked, is neither due nor pruned,
// and can be ended by an operator.
func TestExhaustedInStore(t *testing.T) {
	s := open(t, path(t), 0)
	add(t, s, rows(0, 3))
	kept := parked.Schedule{Keep: true}
	for _, key := range []string{"order-0", "order-1", "order-2"} {
		d := find(t, s, key)
		p := step(t, d.Progress, kept, parked.Begin, start, 0)
		p = step(t, p, kept, parked.Refuse, start, 0)
		if _, err := s.Record(t.Context(), []parked.Change{{Delivery: d, To: p}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Prune(t.Context(), start.Add(1000*hour)); n != 0 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	if page, err := s.Hosts(t.Context(), 0, 10); err != nil || len(page.Hosts) != 0 {
		t.Errorf("hosts with deliveries to send: %+v, %v", page, err)
	}
	if err := s.Cancel(t.Context(), find(t, s, "order-0").ID, start); err != nil {
		t.Error(err)
	}
	if err := s.Retry(t.Context(), find(t, s, "order-1").ID, start); err != nil {
		t.Error(err)
	}
	list, err := s.List(t.Context(), parked.Filter{State: "exhausted"})
	if err != nil || len(list) != 1 || list[0].Key != "order-2" {
		t.Errorf("exhausted: %d, %v", len(list), err)
	}
	want := parked.Totals{Waiting: 2, Exhausted: 1, Cancelled: 1}
	cached, read := s.LastTotals(), parked.Totals{}
	if read, err = s.Totals(t.Context()); err != nil || read != cached {
		t.Errorf("totals %+v, and in the file %+v, %v", cached, read, err)
	}
	if cached.Bytes = 0; cached != want {
		t.Errorf("totals %+v, want %+v", cached, want)
	}
	if n, err := s.Prune(t.Context(), start.Add(1000*hour)); n != 1 || err != nil {
		t.Errorf("pruned %d after a cancel, %v", n, err)
	}
}

func TestManyWaits(t *testing.T) {
	s := open(t, path(t), 0)
	r := row(1)
	for n := range parked.MaxAttempts - 1 {
		r.Waits = append(r.Waits, time.Duration(n+1)*time.Millisecond)
	}
	add(t, s, []parked.Row{r})
	if d := find(t, s, "order-1"); !slices.Equal(d.Waits, r.Waits) {
		t.Errorf(
			"%d waits were read, want %d: %s", len(d.Waits), len(r.Waits), fmt.Sprint(d.Waits[:3]),
		)
	}
}
