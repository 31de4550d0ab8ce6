package parked_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

const (
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

var payment = parked.Schedule{Waits: []time.Duration{
	15 * second,
	15 * second,
	30 * second,
	3 * minute,
	10 * minute,
	20 * minute,
	30 * minute,
	30 * minute,
	30 * minute,
	hour,
	3 * hour,
	3 * hour,
	3 * hour,
	6 * hour,
	6 * hour,
}}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// run sends a delivery with refused attempts of the given durations, and returns their start times.
func run(
	t *testing.T, s parked.Schedule, takes, retryAfter time.Duration,
) (at []time.Duration, p parked.Progress) {
	t.Helper()
	p = parked.Progress{ID: 7, Start: start, Due: start}
	now := start
	for !p.State.Ended() {
		if p.Due.After(now) {
			now = p.Due
		}
		at = append(at, now.Sub(start))
		p = step(t, p, s, parked.Begin, now, 0)
		now = now.Add(takes)
		p = step(t, p, s, parked.Refuse, now, retryAfter)
	}
	return at, p
}

func step(
	t *testing.T, p parked.Progress, s parked.Schedule, e parked.Event, now time.Time,
	after time.Duration,
) parked.Progress {
	t.Helper()
	next, err := p.Next(s, e, now, after)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestPaymentSchedule(t *testing.T) {
	want := []time.Duration{
		0,
		15 * second,
		30 * second,
		minute,
		4 * minute,
		14 * minute,
		34 * minute,
		64 * minute,
		94 * minute,
		124 * minute,
		184 * minute,
		364 * minute,
		544 * minute,
		724 * minute,
		1084 * minute,
		24*hour + 4*minute,
	}
	for _, takes := range []time.Duration{0, 14 * second} {
		at, p := run(t, payment, takes, 0)
		if !slices.Equal(at, want) || p.State != parked.Dead {
			t.Errorf(
				"attempts that take %v: begun at %v, then %v; want %v, then dead", takes, at,
				p.State, want,
			)
		}
	}
	slow, _ := run(t, payment, 20*second, 0)
	if slow[1] != 20*second || slow[2] != 40*second || slow[3] != minute {
		t.Errorf(
			"attempts of 20s begin at %v: one that outlasts the next wait delays only itself",
			slow[:4],
		)
	}
}

func TestRetryAfter(t *testing.T) {
	at, p := run(t, payment, 0, 10*minute)
	if at[1] != 10*minute || at[15] != 24*hour+4*minute || p.State != parked.Dead {
		t.Errorf("with Retry-After: 600 attempts begin at %v", at)
	}
	at, _ = run(t, payment, 0, 1000*hour)
	for _, d := range at[1:] {
		if d != 24*hour+4*minute {
			t.Errorf(
				"a Retry-After beyond the schedule delays an attempt to %v, not to the last planned time",
				d,
			)
		}
	}
}

func TestJitterDelaysOnly(t *testing.T) {
	s := parked.Schedule{Waits: payment.Waits, Jitter: 0.5}
	differ := 0
	for id := range int64(50) {
		for n := range s.Attempts() {
			exact, drawn := payment.Planned(id, n), s.Planned(id, n)
			if drawn < exact || n > 0 && drawn > exact+payment.Waits[n-1]/2 ||
				drawn != s.Planned(id, n) {
				t.Fatalf(
					"attempt %d of delivery %d is planned at %v, without jitter at %v", n, id,
					drawn, exact,
				)
			}
			if drawn != exact {
				differ++
			}
		}
	}
	if differ < 700 {
		t.Errorf("jitter moved %d of 750 attempts", differ)
	}
}

func TestTransitions(t *testing.T) {
	type pair struct {
		s parked.State
		e parked.Event
	}
	allowed := map[pair]parked.State{
		{parked.Waiting, parked.Begin}:    parked.InFlight,
		{parked.Waiting, parked.Skip}:     parked.Waiting,
		{parked.Waiting, parked.Retry}:    parked.Waiting,
		{parked.Waiting, parked.Cancel}:   parked.Cancelled,
		{parked.InFlight, parked.Accept}:  parked.Done,
		{parked.InFlight, parked.Refuse}:  parked.Waiting,
		{parked.InFlight, parked.Stop}:    parked.Dead,
		{parked.InFlight, parked.Abort}:   parked.Waiting,
		{parked.InFlight, parked.Cancel}:  parked.Cancelled,
		{parked.Exhausted, parked.Retry}:  parked.Waiting,
		{parked.Exhausted, parked.Cancel}: parked.Cancelled,
	}
	for s := parked.Waiting; s <= parked.Exhausted; s++ {
		for e := parked.Begin; e < parked.NoEvent; e++ {
			p := parked.Progress{State: s, Start: start, Due: start}
			next, err := p.Next(payment, e, start, 0)
			want, ok := allowed[pair{s, e}]
			var refused *parked.TransitionError
			if ok && (err != nil || next.State != want) ||
				!ok && (!errors.As(err, &refused) || next != p) {
				t.Errorf(
					"%v in state %v: %v, %v; want %v, allowed: %v", e, s, next.State, err, want, ok,
				)
			}
		}
	}
}

// TestForcedAttemptIsExtra checks that an operator's attempt does not replace a planned attempt.
func TestForcedAttemptIsExtra(t *testing.T) {
	p := parked.Progress{Attempt: 15, Start: start, Due: start.Add(24 * hour)}
	now := start.Add(hour)
	p = step(t, p, payment, parked.Retry, now, 0)
	if p.Due != now {
		t.Errorf("due %v, want now", p.Due)
	}
	p = step(t, p, payment, parked.Begin, now, 0)
	p = step(t, p, payment, parked.Refuse, now, 0)
	if p.State != parked.Waiting || p.Attempt != 15 || p.Due != start.Add(24*hour+4*minute) {
		t.Errorf("after a forced attempt: %+v", p)
	}
}

func TestOvertaken(t *testing.T) {
	p := parked.Progress{Attempt: 1, Start: start, Due: start.Add(15 * second)}
	for at, want := range map[time.Duration]int{
		0: 0, 40 * second: 0, 59 * second: 0, 60 * second: 1, 90 * second: 2, 48 * hour: 14,
	} {
		if n := p.Overtaken(payment, start.Add(at), 30*second); n != want {
			t.Errorf("at %v %d attempts have passed, want %d", at, n, want)
		}
	}
	p.Attempt = 0
	if n := p.Overtaken(payment, start.Add(48*hour), 0); n != 0 {
		t.Errorf("the first attempt and %d others have passed unsent", n-1)
	}
	p.Attempt = 15
	if _, err := p.Next(payment, parked.Skip, start, 0); err == nil {
		t.Error("the last attempt was skipped")
	}
}

// TestAnyEventsEnd applies random events. No attempt may begin before its planned time, unless it
// was forced. Every delivery must end, with at most as many scheduled attempts as planned.
func TestAnyEventsEnd(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 26))
		p := parked.Progress{ID: int64(seed), Start: start, Due: start}
		now, used := start, 0
		for !p.State.Ended() {
			now = now.Add(time.Duration(rnd.Int64N(int64(hour))))
			e := parked.Event(rnd.IntN(int(parked.Cancel)))
			if e == parked.Begin && p.Due.After(now) || e == parked.Accept && rnd.IntN(20) > 0 ||
				e == parked.Stop && rnd.IntN(20) > 0 {
				continue
			}
			next, err := p.Next(payment, e, now, time.Duration(rnd.Int64N(int64(hour))))
			if err != nil {
				continue
			}
			planned := start.Add(payment.Planned(p.ID, p.Attempt))
			if e == parked.Begin && !p.Forced && now.Before(planned) {
				t.Fatalf("seed %d: attempt %d at %v is early", seed, p.Attempt, now.Sub(start))
			}
			if e == parked.Skip || e == parked.Refuse && !p.Forced {
				used++
			}
			p = next
		}
		if used > payment.Attempts() {
			t.Errorf("seed %d: %d planned times used", seed, used)
		}
	}
}

func TestScheduleValidate(t *testing.T) {
	for _, s := range []parked.Schedule{
		{Waits: []time.Duration{0}}, {Waits: []time.Duration{-1}}, {Waits: []time.Duration{1000 * 24 * hour}},
		{Waits: make([]time.Duration, 1000)}, {Jitter: -1}, {Jitter: 2},
	} {
		if s.Validate() == nil {
			t.Errorf("%d waits, jitter %v: valid", len(s.Waits), s.Jitter)
		}
	}
	if err := payment.Validate(); err != nil {
		t.Error(err)
	}
}
