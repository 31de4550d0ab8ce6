package rate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestCancelKeepsLaterWindows checks that a canceled reservation frees no room in a window that
// another reservation has filled.
func TestCancelKeepsLaterWindows(t *testing.T) {
	p := newPacer(Options{}.withDefaults())
	p.observe(0, Advice{Limit: 10, Reset: time.Second, Window: time.Second}, 0)
	first, second := p.reserve(0, 10), p.reserve(0, 10)
	p.giveBack(0, first, 10)
	third := p.reserve(0, 10)
	if first != time.Second || second != 2*time.Second || third != 3*time.Second {
		t.Errorf("three reservations of a whole window wait %v, %v and %v", first, second, third)
	}
	p.giveBack(0, third, 10)
	if again := p.reserve(0, 10); again != third {
		t.Errorf("after canceling the last reservation: %v, want %v", again, third)
	}
}

// TestReservationsKeepQuota checks random reservations, some of them behind a pause, and
// cancellations: no window may have more events than the server allows in it.
func TestReservationsKeepQuota(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + random.IntN(10)
		o := Options{Events: float64(random.IntN(20)), Burst: 10}
		p := newPacer(o.withDefaults())
		p.observe(0, Advice{Limit: limit, Remaining: limit, Reset: time.Second,
			Window: time.Second}, 0)
		windows := map[time.Duration]int{}
		for now := time.Duration(0); now < 20*time.Second; {
			now += time.Duration(random.IntN(int(time.Second)))
			if random.IntN(10) == 0 {
				p.observe(now, Advice{RetryAfter: 3 * time.Second}, 0)
			}
			n := 1 + random.IntN(limit)
			at := now + p.reserve(now, n)
			if at > now && random.IntN(3) == 0 {
				p.giveBack(now, at, n)
				continue
			}
			if window := at / time.Second; windows[window]+n > limit {
				t.Fatalf("seed %d: window %d has %d events, limit %d", seed, window,
					windows[window]+n, limit)
			}
			windows[at/time.Second] += n
		}
	}
}

// TestReserveWithoutEnd checks that the largest reservations do not overflow the count.
func TestReserveWithoutEnd(t *testing.T) {
	p := newPacer(Options{}.withDefaults())
	p.observe(0, Advice{Limit: 10, Remaining: 10, Reset: time.Second, Window: time.Second}, 0)
	p.reserve(0, math.MaxInt)
	p.reserve(0, math.MaxInt)
	if p.reserve(0, 1) == 0 || p.take(0, 1) {
		t.Error("an event is allowed after two reservations of the largest int")
	}
}
