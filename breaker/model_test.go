package breaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/recent"
)

// naive is a simple model of a Circuit. It records every call since the last change of state, and
// examines all of them at each step.
type naive struct {
	o       Options
	state   State
	epoch   int
	results []naiveResult // since the last change
	out     []time.Duration
	opened  time.Duration
}

type naiveResult struct {
	at     time.Duration
	failed bool
}

func (m *naive) enter(s State) {
	m.state, m.results, m.out = s, nil, nil
	m.epoch++
}

func (m *naive) allow(now time.Duration) (epoch int, ok bool) {
	if m.state == Open && now >= m.opened+time.Second {
		m.enter(HalfOpen)
	}
	switch m.state {
	case Open:
		return 0, false
	case HalfOpen:
		if n := len(m.out); n > 0 && now >= m.out[n-1]+m.o.ProbeTimeout {
			m.enter(Open)
			m.opened = now
			return 0, false
		}
		if len(m.out)+len(m.results) >= m.o.Probes {
			return 0, false
		}
		m.out = append(m.out, now)
	case Closed:
	}
	return m.epoch, true
}

func (m *naive) done(now time.Duration, epoch int, o Outcome) {
	if epoch != m.epoch {
		return
	}
	if m.state == HalfOpen {
		// The model counts probes but does not distinguish them: it keeps the latest start.
		m.out = m.out[1:]
		if o == Success {
			m.results = append(m.results, naiveResult{})
		}
	}
	switch {
	case o == Ignored:
	case m.state == HalfOpen && o == Failure:
		m.enter(Open)
		m.opened = now
	case m.state == HalfOpen && len(m.results) == m.o.Probes:
		m.enter(Closed)
	case m.state == Closed:
		m.results = append(m.results, naiveResult{now, o == Failure})
		if m.failing(now) {
			m.enter(Open)
			m.opened = now
		}
	}
}

func (m *naive) failing(now time.Duration) bool {
	streak, calls, failures := 0, 0, 0
	part := m.o.Window / recent.Parts
	for _, r := range m.results {
		streak++
		if !r.failed {
			streak = 0
		}
		if now/part-r.at/part < recent.Parts {
			calls++
			if r.failed {
				failures++
			}
		}
	}
	last := m.results[len(m.results)-1]
	return last.failed && (streak >= m.o.Failures ||
		calls >= m.o.MinCalls && float64(failures) >= m.o.FailureRate*float64(calls))
}

// TestCircuitAgainstModel compares states and refusals with the model after every step.
func TestCircuitAgainstModel(t *testing.T) {
	entered := map[State]int{}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 3))
		o := Options{
			Failures: 1 + random.IntN(8), FailureRate: 0.3 + 0.7*random.Float64(),
			MinCalls: 1 + random.IntN(10),
			Window:   time.Second * time.Duration(1+random.IntN(10)),
			Wait:     backoff.Fixed(time.Second),
			Probes:   1 + random.IntN(3), ProbeTimeout: 3 * time.Second,
		}
		c, err := NewCircuit(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		model := naive{o: o}
		type call struct {
			ticket Ticket
			epoch  int
		}
		var calls []call
		now, bad := time.Duration(0), random.Float64()
		for step := range 3000 {
			now += time.Duration(random.ExpFloat64() * float64(100*time.Millisecond))
			if step%200 == 0 {
				bad = random.Float64()
			}
			if len(calls) == 0 || random.IntN(2) == 0 {
				ticket, ok := c.Allow(now)
				epoch, want := model.allow(now)
				if ok != want {
					t.Fatalf("seed %d, step %d: allowed %v, want %v (%v)", seed, step, ok, want,
						model.state)
				}
				if ok {
					calls = append(calls, call{ticket, epoch})
				}
			} else {
				i := random.IntN(len(calls))
				outcome := Success
				if random.Float64() < bad {
					outcome = Failure
				} else if random.IntN(8) == 0 {
					outcome = Ignored
				}
				c.Done(now, calls[i].ticket, outcome, 0)
				model.done(now, calls[i].epoch, outcome)
				calls = append(calls[:i], calls[i+1:]...)
			}
			entered[c.State()]++
			if c.State() != model.state {
				t.Fatalf("seed %d, step %d: %v, want %v", seed, step, c.State(), model.state)
			}
		}
	}
	if entered[Closed] < 1000 || entered[Open] < 1000 || entered[HalfOpen] < 1000 {
		t.Errorf("steps by state: %v, want many of each", entered)
	}
}
