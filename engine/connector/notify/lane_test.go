package notify

import (
	"testing"
	"time"
)

// TestPlaces checks that a host becomes slow if an attempt is in flight for over a second. The
// attempt counts toward the share of slow hosts until it ends.
func TestPlaces(t *testing.T) {
	start := time.Unix(0, 0)
	silent, fast := &lane{}, &lane{}
	s := places{attempts: 8, share: 2, extra: 2}
	first := s.begin(silent, start)
	second := s.begin(silent, start.Add(time.Millisecond))
	third := s.begin(fast, start.Add(2*time.Millisecond))
	s.end(third)
	s.age(start.Add(slowAfter))
	if silent.slow || s.slow != 0 || len(s.recent) != 2 {
		t.Fatalf("after %v: slow %v, share %+v", slowAfter, silent.slow, s)
	}
	s.age(start.Add(slowAfter + time.Millisecond))
	if !silent.slow || s.slow != 1 || s.isFullFor(silent) {
		t.Fatalf("after one attempt is old: slow %v, share %+v", silent.slow, s)
	}
	s.age(start.Add(2 * slowAfter))
	if fast.slow || s.slow != 2 || !s.isFullFor(silent) || s.isFullFor(fast) || len(s.recent) != 0 {
		t.Fatalf("after both are old: fast one slow %v, share %+v", fast.slow, s)
	}
	s.end(first)
	s.end(second)
	fourth := s.begin(silent, start.Add(3*slowAfter))
	if s.slow != 1 {
		t.Errorf("an attempt at a host that is known as slow does not count: %+v", s)
	}
	s.end(fourth)
	if s.slow != 0 || len(s.recent) != 0 {
		t.Errorf("nothing is in flight, share %+v", s)
	}
}

// TestExtraPlaces checks that long and slow attempts take extra places, so that quick attempts keep
// theirs.
func TestExtraPlaces(t *testing.T) {
	start := time.Unix(0, 0)
	for _, c := range []struct{ unknown, free int }{
		{unknown: 1, free: 8},
		{unknown: 6, free: 8}, // all extra places taken
		{unknown: 7, free: 7},
		{unknown: 8, free: 6},
	} {
		for _, after := range []time.Duration{longAfter, slowAfter} {
			p := newPlaces(8)
			var attempts []*attempt
			for n := range c.unknown {
				if p.isFull() {
					t.Fatalf("full after %d attempts at unknown hosts", n)
				}
				attempts = append(attempts, p.begin(&lane{}, start))
			}
			if wait := p.untilAged(start); wait != longAfter+time.Millisecond {
				t.Errorf("the oldest attempt is long after %v", wait)
			}
			now := start.Add(after + time.Millisecond)
			p.age(now)
			if wait := p.untilAged(now); after == longAfter && wait != slowAfter-longAfter {
				t.Errorf("the oldest attempt is slow after another %v", wait)
			}
			free := 0
			for ; !p.isFull(); free++ {
				attempts = append(attempts, p.begin(&lane{}, now))
			}
			if free != c.free || p.busy() != c.unknown+c.free {
				t.Errorf("%d of %v leave %d places, want %d", c.unknown, after, free, c.free)
			}
			for _, a := range attempts {
				p.end(a)
			}
			if p.busy() != 0 || p.long != 0 || p.isFull() || p.untilAged(now) != time.Hour {
				t.Errorf("nothing is in flight, places %+v", p)
			}
		}
	}
}
