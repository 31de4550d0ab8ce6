package control

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTimeoutIsRFC6298 compares the estimator, for items of one cost, with the RFC's own formulas.
func TestTimeoutIsRFC6298(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var e estimator
		if e.rto(1, minRTO) != time.Second {
			t.Fatalf("before the first sample the timeout is %v, want 1 s", e.rto(1, minRTO))
		}
		var srtt, rttvar float64
		mean := 0.05 + rnd.Float64()
		for i := range 500 {
			r := mean * (0.2 + rnd.ExpFloat64())
			if i == 0 {
				srtt, rttvar = r, r/2
			} else {
				rttvar = 0.75*rttvar + 0.25*math.Abs(srtt-r)
				srtt = 0.875*srtt + 0.125*r
			}
			e.sample(r, 3)
			want := min(max(srtt+max(4*rttvar, srtt), 0.2), 60)
			if got := e.rto(3, minRTO).Seconds(); math.Abs(got-want) > 1e-6*want {
				t.Fatalf("after sample %d the timeout is %v s, want %v s", i, got, want)
			}
		}
	}
}

func TestTimeoutDoubles(t *testing.T) {
	var e estimator
	e.sample(0.1, 1) // 0.1 + 4*0.05 s
	if e.rto(1, minRTO) != 300*time.Millisecond {
		t.Fatalf("timeout %v, want 300ms", e.rto(1, minRTO))
	}
	e.double(5*time.Second, time.Second)
	e.double(5*time.Second, 2*time.Second) // sent before the last doubling: no effect
	if e.rto(1, minRTO) != 600*time.Millisecond {
		t.Errorf("timeout %v after one loss, want 600ms", e.rto(1, minRTO))
	}
	e.double(7*time.Second, 6*time.Second)
	if e.rto(1, minRTO) != 1200*time.Millisecond {
		t.Errorf("timeout %v after a second loss, want 1.2s", e.rto(1, minRTO))
	}
	for i := range 40 {
		e.double(time.Duration(10+2*i)*time.Second, time.Duration(9+2*i)*time.Second)
	}
	if e.rto(1, minRTO) != time.Minute {
		t.Errorf("timeout %v, want at most a minute", e.rto(1, minRTO))
	}
	e.shift = 0
	var fast estimator
	fast.sample(0.001, 1)
	if fast.rto(1, minRTO) != 200*time.Millisecond {
		t.Errorf("timeout %v, want at least 200ms", fast.rto(1, minRTO))
	}
	if got := fast.rto(1, minBusyRTO); got != 800*time.Millisecond {
		t.Errorf("timeout %v on a busy machine, want at least 800ms", got)
	}
	if fast.spurious(); fast.rto(1, minRTO) != 200*time.Millisecond {
		t.Errorf("timeout %v after a late answer, want 200ms still", fast.rto(1, minRTO))
	}
}

// TestSizeNormalised uses round trips of 10 ms + 1 ms per unit of cost. It checks that an item of
// 100 units gets its own timeout, and that normalised round trips do not depend on the size.
func TestSizeNormalised(t *testing.T) {
	var e estimator
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		cost := float64(1 + rnd.IntN(1000))
		e.sample(0.010+0.001*cost, cost)
	}
	if math.Abs(e.a-0.010) > 0.001 || math.Abs(e.b-0.001) > 1e-5 {
		t.Errorf("fit %v + %v cost, want 0.010 + 0.001 cost", e.a, e.b)
	}
	small, large := e.normal(0.020, 10), e.normal(1.010, 1000)
	if math.Abs(small/large-1) > 0.02 {
		t.Errorf("normalised round trips %v and %v, want equal", small, large)
	}
	if d := e.rto(1000, minRTO); d < 2*time.Second || d > 2100*time.Millisecond {
		t.Errorf("timeout of a large item is %v, want just above twice its 1.01 s", d)
	}
}

func TestRateAndService(t *testing.T) {
	var e estimator
	// The worker delivers 100 items per second, and 10 are always in flight. So each item takes
	// 100 ms, and 10 are delivered in that time.
	now := time.Duration(0)
	for range 200 {
		now += 10 * time.Millisecond
		e.sample(0.1, 1)
		e.progress(now, 0.1, 1, 10, 10)
	}
	if math.Abs(e.rate()-100) > 1 {
		t.Errorf("rate %v, want 100", e.rate())
	}
	if math.Abs(e.service-0.01) > 0.001 {
		t.Errorf("service %v, want what is left of 100 ms after nine others at 100/s", e.service)
	}
	var alone estimator
	for range 50 {
		alone.progress(now, 0.2, 1, 1, 1)
	}
	if alone.rate() != 0 || math.Abs(alone.service-0.2) > 1e-9 {
		t.Errorf("one at a time gives rate %v, service %v; want 0 (not known) and 0.2", alone.rate(), alone.service)
	}
}

// TestRateOfRandomTimes checks that the estimated rate is on average the true one if service times
// are exponential and few items are in flight.
func TestRateOfRandomTimes(t *testing.T) {
	const seed, inFlight, rate, samples = 5, 2, 100.0, 20_000
	rnd := rand.New(rand.NewPCG(seed, 0))
	var e estimator
	var now, sum float64
	sent := make([]float64, inFlight) // when the items in flight were sent, oldest first
	for i := range samples {
		now += rnd.ExpFloat64() / rate
		e.sample(now-sent[0], 1)
		e.progress(toDuration(now), now-sent[0], 1, inFlight, inFlight)
		sent = append(sent[1:], now)
		if i >= samples/10 {
			sum += e.rate()
		}
	}
	if mean := sum / (samples - samples/10); math.Abs(mean/rate-1) > 0.1 {
		t.Errorf("the mean of the estimates is %.1f, want about %v", mean, rate)
	}
}

func TestBufferIsSorted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	var b buffer
	var naive []*item
	for i := range 20_000 {
		switch n := rnd.IntN(5); {
		case n < 2 || len(naive) == 0:
			seq := uint64(i)
			if n == 0 {
				seq = rnd.Uint64N(uint64(i) + 1)
			}
			it := &item{seq: uint64(i), rank: rank{root: seq, seq: uint64(i)}}
			b.add(it)
			naive = append(naive, it)
			slices.SortFunc(naive, func(x, y *item) int {
				if x.rank.less(&y.rank) {
					return -1
				}
				return 1
			})
		case n == 2:
			b.removeAt(0)
			naive = naive[1:]
		default:
			j := rnd.IntN(len(naive))
			b.remove(naive[j])
			naive = slices.Delete(naive, j, j+1)
		}
		if b.len() != len(naive) {
			t.Fatalf("step %d: %d items, want %d", i, b.len(), len(naive))
		}
		for j, it := range naive {
			if b.at(j) != it {
				t.Fatalf("step %d: item %d at %d, want %d", i, b.at(j).seq, j, it.seq)
			}
		}
		if len(naive) > 60 {
			b, naive = buffer{}, nil
		}
	}
}

// TestPiecesKeepTheirPlace cuts items into pieces again and again, and checks that the pieces stay
// in the place of the item, in their order. It cuts so often that the place of an item cannot be
// divided further.
func TestPiecesKeepTheirPlace(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	var order []rank
	for i := range uint64(3) {
		order = append(order, rank{root: i + 1, seq: i + 1})
	}
	seq := uint64(10)
	for range 300 {
		i := rnd.IntN(len(order))
		if rnd.IntN(2) == 0 {
			i = 1 // cut the same piece again and again
		}
		n := uint32(2 + rnd.IntN(3))
		var pieces []rank
		p := order[i]
		for j := range n {
			seq++
			pieces = append(pieces, p.piece(j, n, seq))
		}
		if p.width == 1 {
			continue // the width is used up: only Seq orders such pieces
		}
		order = slices.Replace(order, i, i+1, pieces...)
		for j := 1; j < len(order); j++ {
			if !order[j-1].less(&order[j]) {
				t.Fatalf("place %d %+v is not before %+v", j-1, order[j-1], order[j])
			}
		}
	}
}

func TestHeapAgainstSorting(t *testing.T) {
	var h delays
	againstSorting(t, 100, func(i int, due time.Duration) *item {
		return &item{rank: rank{root: uint64(i)}, past: past{due: due}}
	},
		func(it *item) { heap.Push(&h, it) }, func(i int) { heap.Remove(&h, i) },
		func() (*item, int) { return h[0], len(h) }, func(it *item) int { return it.heapIndex },
		func(x, y *item) bool { return x.due < y.due || x.due == y.due && x.rank.less(&y.rank) })
}

func TestDeadlinesAgainstSorting(t *testing.T) {
	var h deadlines
	againstSorting(t, 400, func(i int, due time.Duration) *attempt { return &attempt{id: uint64(i), deadline: due} },
		h.push, h.removeAt, func() (*attempt, int) { return h[0].a, len(h) },
		func(a *attempt) int { return a.heapIndex },
		func(x, y *attempt) bool { return x.deadline < y.deadline || x.deadline == y.deadline && x.id < y.id })
}

// againstSorting pushes and removes random elements, and compares the first with the minimum of a
// plain list. The heap has at most as many elements as the parameter most allows.
func againstSorting[E comparable](t *testing.T, most int, make func(int, time.Duration) E,
	push func(E), remove func(int),
	first func() (E, int), at func(E) int, before func(E, E) bool) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(2, 8))
	var naive []E
	for i := range 20_000 {
		if len(naive) == 0 || len(naive) < most && rnd.IntN(3) > 0 {
			e := make(i, time.Duration(rnd.IntN(50)))
			push(e)
			naive = append(naive, e)
		} else {
			for range 1 + rnd.IntN(max(1, len(naive)-1)) { // sometimes removes many
				j := rnd.IntN(len(naive))
				remove(at(naive[j]))
				if at(naive[j]) != -1 {
					t.Fatal("a removed element keeps its index")
				}
				naive = slices.Delete(naive, j, j+1)
				if rnd.IntN(20) > 0 {
					break
				}
			}
		}
		if len(naive) == 0 {
			continue
		}
		want := slices.MinFunc(naive, func(x, y E) int {
			if before(x, y) {
				return -1
			}
			return 1
		})
		if got, n := first(); got != want || at(got) != 0 || n != len(naive) {
			t.Fatalf("step %d: the first of %d is %v, want %v of %d", i, n, got, want, len(naive))
		}
	}
}

// TestIDsFindTheirAttempts checks that the ID of a removed attempt finds nothing, even if its slot
// is in use again.
func TestIDsFindTheirAttempts(t *testing.T) {
	m, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	a := m.attempts.table.add()
	a.item = &item{}
	id := a.id
	if m.attempts.table.find(id) != a {
		t.Fatal("an ID does not find its attempt")
	}
	m.attempts.table.remove(a)
	b := m.attempts.table.add()
	b.item = &item{}
	if b != a || b.id == id || m.attempts.table.find(id) != nil ||
		m.attempts.table.find(b.id) != b || m.attempts.table.find(1<<63) != nil {
		t.Errorf("IDs %d and %d of one slot are confused", id, b.id)
	}
}

// TestLaneIsStatus checks that Lane returns the same LaneStatus as Status.
func TestLaneIsStatus(t *testing.T) {
	m, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lane := range []int32{4, 1} {
		m.Step(Event{Kind: LaneUp, Lane: lane}, nil)
	}
	m.Step(Event{Now: 1, Kind: Offer, Seq: 1, Cost: 3}, nil)
	for _, want := range m.Status().Lanes {
		if got, ok := m.Lane(want.Lane); !ok || got != want {
			t.Errorf("Lane(%d) = %+v, %v; want %+v", want.Lane, got, ok, want)
		}
	}
	if _, ok := m.Lane(2); ok {
		t.Error("there is a lane 2")
	}
}

// TestKnowledgeOfABreaker checks the number of failures that open a breaker. If many attempts hang,
// more failures are needed. The first delivery of a lane does not lower the number.
func TestKnowledgeOfABreaker(t *testing.T) {
	b := blame{firstAttempts: 12, firstDelivered: 12, hangs: hangShare{hung: 22, delivered: 12}}
	if n := b.streakLimit(3); n < 20 {
		t.Errorf("%d failures open a breaker if most attempts hang, want at least 20", n)
	}
	b = blame{hangs: hangShare{delivered: 10}}
	for range 10 {
		l := &lane{stats: laneStats{delivered: 1}}
		it := &item{}
		it.number = 1
		b.recordDelivery(it, &attempt{lane: l})
	}
	if n := b.streakLimit(3); n != 20 {
		t.Errorf("%d failures open a breaker after the first deliveries of ten lanes, want 20", n)
	}
}

// TestChanceWithFewRepeats checks the share of random failures when nine of ten first attempts have
// failed. Without repeats, it is the share of all failures. It must fall with the first failed
// repeats, but not by much, because most of them would also fail if all failures were random.
func TestChanceWithFewRepeats(t *testing.T) {
	b := blame{firstAttempts: 100, firstDelivered: 10}
	for _, test := range []struct{ failed, least, most float64 }{
		{0, 0.88, 0.9}, {1, 0.75, 0.85}, {10, 0.4, 0.45}, {50, 0.1, 0.15},
	} {
		b.secondFailed = test.failed
		if got := b.chance(); got < test.least || got > test.most {
			t.Errorf("after %v failed repeats, the chance is %.2f, want %v to %v", test.failed, got,
				test.least, test.most)
		}
	}
}
