package control

import "testing"

// TestHangRanks checks when a level is found, which is a number in flight from which attempts hang.
// It must be found only if attempts hang mainly from that number on, and overdue attempts do not
// return.
func TestHangRanks(t *testing.T) {
	for _, x := range []struct {
		name  string
		hangs func(i, rank int) bool
		slow  bool // attempts that hang are delivered later
		wide  bool // the window is widened
		want  int  // rank of the level, 0 for none
	}{
		{"dropped from rank 5 on", func(_, rank int) bool { return rank >= 5 }, false, true, 5},
		{"half of the data hangs", func(i, _ int) bool { return i%2 == 1 }, false, true, 0},
		{"nine tenths of the data hang", func(i, _ int) bool { return i%10 > 0 }, false, true, 0},
		{"slow from rank 5 on", func(_, rank int) bool { return rank >= 5 }, true, false, 0},
		{"nothing hangs", func(_, _ int) bool { return false }, false, false, 0},
	} {
		var h hangRanks
		for i := range 360 {
			rank := i / 10 % 12
			a := &attempt{id: uint64(i) + 1, rank: rank, overdue: true, heldFor: 1}
			hung := x.hangs(i, rank)
			h.observe(a, hung, 1)
			h.count(nil)
			if hung {
				h.overdue++
			}
			if hung && x.slow {
				h.undo(a)
			}
		}
		if got := h.widening(1) > 1.2; got != x.wide {
			t.Errorf("%s: the window is widened by %.2f", x.name, h.widening(1))
		}
		if got, _ := h.findLevel(); got != x.want {
			t.Errorf("%s: the level is %d, want %d", x.name, got, x.want)
		}
	}
	var none *hangRanks
	if none.hungShare() != 0 {
		t.Error("attempts hang although none was counted")
	}
}

func TestRankBuckets(t *testing.T) {
	for i := range rankBuckets {
		if got := rankBucket(bucketRank(i)); got != i {
			t.Errorf("the bucket of the lowest rank of bucket %d is %d", i, got)
		}
		if i > 0 && rankBucket(bucketRank(i)-1) != i-1 {
			t.Errorf("the rank before bucket %d is not in the bucket before it", i)
		}
	}
}

// TestOverdueAttemptsAreRanked checks that hangRanks counts an attempt as overdue as soon as it is
// overdue and was overtaken, whichever came first.
func TestOverdueAttemptsAreRanked(t *testing.T) {
	m, _ := steps(t)
	l := m.lanes.up[0]
	l.hanging = hanging{recent: 10, ranks: &hangRanks{}}
	h := l.hanging.ranks
	l.hanging.overdue(&attempt{id: 1, lane: l, ranked: true, overdue: true}, true)
	if h.overdue != 1 {
		t.Errorf("overtaken before its timeout: %v overdue, want 1", h.overdue)
	}
	l.hanging.overdue(&attempt{id: 2, lane: l, ranked: true, overdue: true}, false)
	l.onTime.newest = 3
	m.attempts.overtakeOverdue(l, false)
	if h.overdue != 2 {
		t.Errorf("overtaken after its timeout: %v overdue, want 2", h.overdue)
	}
}

// TestRanksAreCountedInOrder checks that an attempt is counted only after all earlier ones have
// given up their places in the window. Otherwise deliveries would be counted sooner than earlier
// attempts that hang, as if the worker hung from a certain number in flight on.
func TestRanksAreCountedInOrder(t *testing.T) {
	var h hangRanks
	first, second := &attempt{id: 1, rank: 3, heldFor: 1}, &attempt{id: 2, rank: 4}
	h.observe(second, false, 1)
	h.count(first)
	if n := h.below(); n != (hangCount{}) {
		t.Errorf("%+v are counted while an earlier attempt has a place", n)
	}
	h.observe(first, true, 1)
	h.count(nil)
	if n := h.below(); n.hung == 0 || n.delivered == 0 || h.hungFor == 0 {
		t.Errorf("%+v are counted, %v s, want one of each", n, h.hungFor)
	}
	h.undo(first)
	if n := h.below(); n.hung > 0 || h.hungFor > 0 || h.ranks[3].delivered == 0 {
		t.Errorf("%+v are counted, %v s, want two deliveries", n, h.hungFor)
	}
}

// TestRanksAreMadeAgain checks two attempts that hang. The hangRanks of the lane are discarded
// after the first one and created again for the second one. When the first attempt is delivered
// after all, the new hangRanks count this delivery, but must still count the second attempt as
// hung.
func TestRanksAreMadeAgain(t *testing.T) {
	h := hanging{recent: 10}
	before, after := &attempt{id: 1, ranked: true}, &attempt{id: 2, ranked: true}
	h.exclude(before)
	h.ranks = nil
	h.exclude(after)
	h.countDelivered(before, 1)
	h.ranks.count(nil)
	if c := h.ranks.below(); c.hung < 0.9 || c.delivered < 0.9 || h.ranks.slow > 0 {
		t.Errorf("the ranks have %+v and %v slow attempts, want one of each and none", c,
			h.ranks.slow)
	}
}

// TestWideningWithoutTime checks that the factor by which the window is widened is at least 1, and
// not NaN, if attempts hang or are delivered in no time.
func TestWideningWithoutTime(t *testing.T) {
	for _, h := range []hangRanks{{}, {overdue: 1}, {hungFor: 1}, {overdue: 1, hungFor: 1}} {
		if w := h.widening(0); !(w >= 1 && w <= maxWidening) {
			t.Errorf("%+v: widening %v, want 1 to %v", h, w, maxWidening)
		}
	}
}
