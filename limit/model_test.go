package limit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// naive is a simple model of an admission: its queue is a list that is sorted whenever it is used.
type naive struct {
	size, most int
	running    []int // callers by number
	waiting    []naiveWaiter
	refused    []int
}

type naiveWaiter struct {
	caller   int
	priority Priority
}

func (m *naive) acquire(caller int, p Priority) {
	if len(m.running) < m.size {
		m.running = append(m.running, caller)
		return
	}
	if m.most == 0 {
		m.refused = append(m.refused, caller)
		return
	}
	if len(m.waiting) == m.most {
		last := m.waiting[len(m.waiting)-1]
		if last.priority >= p {
			m.refused = append(m.refused, caller)
			return
		}
		m.refused = append(m.refused, last.caller)
		m.waiting = m.waiting[:len(m.waiting)-1]
	}
	m.waiting = append(m.waiting, naiveWaiter{caller, p})
	slices.SortStableFunc(m.waiting, func(a, b naiveWaiter) int {
		return int(b.priority) - int(a.priority)
	})
}

func (m *naive) finish(caller int) {
	m.running = slices.DeleteFunc(m.running, func(c int) bool { return c == caller })
	if len(m.waiting) > 0 {
		m.running = append(m.running, m.waiting[0].caller)
		m.waiting = m.waiting[1:]
	}
}

func (m *naive) giveUp(caller int) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w naiveWaiter) bool { return w.caller == caller })
}

// TestAdmissionAgainstModel checks after every step that the same callers run, and that the same
// callers are refused, as in the model.
func TestAdmissionAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		size, most := 1+random.IntN(4), random.IntN(6)
		model := naive{size: size, most: most}
		a := newAdmission(Options{Window: window.Fixed{Size: size}, MaxWaiting: most}, 0)
		var running, rejected []int
		handles, waiters := map[int]handle{}, map[int]*waiter{}
		for step := range 2000 {
			now := time.Duration(step + 1)
			switch op := random.IntN(5); {
			case op < 2:
				p := Priority(random.IntN(3)) - 1
				model.acquire(step, p)
				if a.hasRoom() {
					handles[step] = a.start(now)
					running = append(running, step)
					break
				}
				w := &waiter{priority: p}
				w.wake = func() {
					delete(waiters, step)
					if w.state == refused {
						rejected = append(rejected, step)
						return
					}
					handles[step] = w.permit
					running = append(running, step)
				}
				waiters[step] = w
				if a.enqueue(now, 0, w) != 0 {
					delete(waiters, step)
					rejected = append(rejected, step)
				}
			case op < 4 && len(running) > 0:
				i := random.IntN(len(running))
				caller := running[i]
				running = slices.Delete(running, i, i+1)
				model.finish(caller)
				a.finish(now, handles[caller], Outcome(random.IntN(4)))
				a.finish(now, handles[caller], Success) // does nothing
			case op == 4 && len(model.waiting) > 0:
				caller := model.waiting[random.IntN(len(model.waiting))].caller
				model.giveUp(caller)
				a.queue.remove(waiters[caller])
			}
			slices.Sort(running)
			slices.Sort(model.running)
			if !slices.Equal(running, model.running) || !slices.Equal(rejected, model.refused) ||
				a.queue.n != len(model.waiting) {
				t.Fatalf("seed %d, step %d: running %v, refused %v, %d waiting; want %v, %v, %d",
					seed, step, running, rejected, a.queue.n, model.running, model.refused,
					len(model.waiting))
			}
		}
	}
}

func TestProbeIntervals(t *testing.T) {
	for _, v := range [][2]time.Duration{{0, 1}, {1, 1}, {2, 5}, {6, 10}, {10, 10}, {11, 20},
		{41, 80}} {
		if got := interval(v[0] * time.Second); got != v[1]*time.Second {
			t.Errorf("interval(%ds) = %v, want %ds", v[0], got, v[1])
		}
	}
}

// TestLongestMaxWait checks that the longest MaxWait keeps the deadline of a caller: the caller
// gets no permit after its deadline.
func TestLongestMaxWait(t *testing.T) {
	a := newAdmission(
		Options{Window: window.Fixed{Size: 1}, MaxWaiting: 1, MaxWait: math.MaxInt64}, 0)
	running := a.start(1)
	w := &waiter{wake: func() {}}
	if why := a.enqueue(time.Second, 2*time.Second, w); why != 0 {
		t.Fatalf("the caller was refused: %v", why)
	}
	a.finish(3*time.Second, running, Success)
	if w.state != refused || w.refusal != QueueTooSlow {
		t.Errorf("state %d, refusal %v; want a refusal with %v", w.state, w.refusal, QueueTooSlow)
	}
}
