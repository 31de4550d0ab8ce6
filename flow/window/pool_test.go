package window

import (
	"testing"
	"time"
)

// TestPoolSenders checks that a pool remembers at most 1,024 senders. A further sender replaces the
// one that was silent for longest. If that one comes back, its count begins at 0 again. The others
// keep their counts.
func TestPoolSenders(t *testing.T) {
	var p Pool
	now := time.Duration(0)
	done := func(sender uint64) uint64 {
		now += time.Microsecond
		return p.Done(now, sender, 1, 0, 0).Taken
	}
	for sender := range uint64(1024) {
		done(sender)
	}
	if taken := done(0); taken != 2 { // so that sender 1 is now silent for longest
		t.Fatalf("sender 0 has taken %d, want 2", taken)
	}
	for sender := uint64(2000); sender < 2003; sender++ {
		if taken := done(sender); taken != 1 {
			t.Errorf("new sender %d has taken %d, want 1", sender, taken)
		}
		if n := len(p.senders); n != 1024 {
			t.Fatalf("%d senders are remembered, want 1024", n)
		}
	}
	for _, c := range []struct{ sender, taken uint64 }{
		{0, 3}, {1023, 2}, {4, 2}, {2002, 2}, // remembered
		{1, 1}, {3, 1}, // evicted
	} {
		if taken := done(c.sender); taken != c.taken {
			t.Errorf("sender %d has taken %d, want %d", c.sender, taken, c.taken)
		}
	}
}
