package control_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// loop keeps a machine saturated. It answers attempts in the order of their start.
type loop struct {
	m      *control.Machine
	now    time.Duration
	seq    uint64
	cmds   []control.Command
	flying []uint64 // ring of attempts
	head   int
	keys   uint64 // number of keys, which items have in turn; 0: none
	hang   uint64 // of so many items in turn, one hangs; 0: none
	hung   []hungAttempt
	key    [1]uint32
}

type hungAttempt struct {
	id, seq uint64
	at      time.Duration
}

func newLoop(tb testing.TB, lanes int, w window.Algorithm) *loop {
	tb.Helper()
	return newKeyed(tb, lanes, 0, control.Limits{}, control.Config{Window: w})
}

// newKeyed returns a saturated loop. Each item has one of the given number of keys, in turn. With 0
// keys, the items have none.
func newKeyed(tb testing.TB, lanes int, keys uint64, limits control.Limits, c control.Config) *loop {
	tb.Helper()
	m, err := control.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	l := &loop{m: m, keys: keys}
	for i := range lanes {
		l.step(control.Event{Kind: control.LaneUp, Lane: int32(i), Limits: limits})
	}
	l.fill()
	for range 60 * lanes {
		l.ack()
	}
	return l
}

func (l *loop) step(e control.Event) {
	e.Now = l.now
	l.cmds = l.m.Step(e, l.cmds[:0])
	for _, c := range l.cmds {
		switch {
		case c.Kind != control.Start:
		case l.hang > 0 && c.Seq%l.hang == 0:
			l.hung = append(l.hung, hungAttempt{c.ID, c.Seq, l.now})
		default:
			l.flying = append(l.flying, c.ID)
		}
	}
}

func (l *loop) fill() {
	for l.m.Room() {
		l.seq++
		e := control.Event{Kind: control.Offer, Seq: l.seq, Cost: 1, Bytes: 100}
		if l.keys > 0 {
			l.key[0] = uint32(l.seq % l.keys)
			e.Keys = l.key[:]
		}
		l.step(e)
	}
}

func (l *loop) ack() {
	if l.head > len(l.flying)/2 && len(l.flying) == cap(l.flying) {
		n := copy(l.flying, l.flying[l.head:])
		l.flying, l.head = l.flying[:n], 0
	}
	for l.head == len(l.flying) { // all hang
		l.now, _ = l.m.Wake()
		l.step(control.Event{Kind: control.Tick})
		l.fill()
	}
	id := l.flying[l.head]
	l.head++
	l.now += 100 * time.Microsecond
	l.step(control.Event{Kind: control.Answer, ID: id, Outcome: control.Delivered})
	l.fill()
	if at, ok := l.m.Wake(); ok && at <= l.now {
		l.step(control.Event{Kind: control.Tick})
	}
	for len(l.hung) > 0 && l.now-l.hung[0].at > 300*time.Millisecond {
		h := l.hung[0]
		l.hung = l.hung[:copy(l.hung, l.hung[1:])]
		l.step(control.Event{Kind: control.Abort, Seq: h.seq})
		l.step(control.Event{Kind: control.Answer, ID: h.id, Outcome: control.TimedOut})
	}
}

// BenchmarkAckHanging is BenchmarkAckHeld with one lane, at which one in 100 items hangs. These are
// aborted after 300 ms.
func BenchmarkAckHanging(b *testing.B) {
	for _, size := range []int{10, 100, 1_000} {
		b.Run(fmt.Sprintf("each=%d", size), func(b *testing.B) {
			l := newLoop(b, 1, window.Fixed{Size: size})
			l.hang = 100
			for range 10_000 {
				l.ack()
			}
			b.ReportAllocs()
			for b.Loop() {
				l.ack()
			}
		})
	}
}

// kinds returns every kind of window, each with a maximum of most batches.
func kinds(most int) []window.Algorithm {
	return []window.Algorithm{
		window.Linear{Max: most}, window.AIMD{Max: most}, window.Queue{Max: most},
		window.Credit{Max: most}, window.Rate{Max: most},
		window.Fixed{Size: most},
	}
}

// BenchmarkAck measures one delivered item: its answer, and the offer and start of the next item.
func BenchmarkAck(b *testing.B) {
	for _, w := range kinds(32) {
		for _, lanes := range []int{12, 100, 1000} {
			b.Run(fmt.Sprintf("%s/lanes=%d", w.Name(), lanes), func(b *testing.B) {
				l := newLoop(b, lanes, w)
				b.ReportAllocs()
				for b.Loop() {
					l.ack()
				}
			})
		}
	}
}

// BenchmarkAckHeld is BenchmarkAck with different numbers of items in flight at each of 12 lanes.
func BenchmarkAckHeld(b *testing.B) {
	for _, size := range []int{1, 10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("each=%d", size), func(b *testing.B) {
			l := newLoop(b, 12, window.Fixed{Size: size})
			b.ReportAllocs()
			for b.Loop() {
				l.ack()
			}
		})
	}
}

// BenchmarkAckBlocked is BenchmarkAck with 12 lanes and four keys, and with different numbers of
// items that wait behind others of their key.
func BenchmarkAckBlocked(b *testing.B) {
	for _, ordered := range []bool{false, true} {
		for _, waiting := range []int{64, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("ordered=%v/waiting=%d", ordered, waiting), func(b *testing.B) {
				limits := control.Limits{InFlight: 8, Ordered: ordered}
				l := newKeyed(b, 12, 4, limits, control.Config{Window: window.Fixed{Size: 8}, Ahead: waiting})
				b.ReportAllocs()
				for b.Loop() {
					l.ack()
				}
			})
		}
	}
}

func TestAckAllocatesNothing(t *testing.T) {
	for _, lanes := range []int{12, 1000} {
		for _, w := range kinds(32) {
			l := newLoop(t, lanes, w)
			if n := testing.AllocsPerRun(3000, l.ack); n != 0 {
				t.Errorf("%s: an ack with %d lanes allocates %v times, want 0", w.Name(), lanes, n)
			}
		}
	}
}

// TestAckCost holds the cost of an ack to 1 us with 12 lanes and 6 us with 1,000, without
// allocations. It measures, so it only runs with PENSTOCK_ACK_COST=1, on a quiet machine.
func TestAckCost(t *testing.T) {
	if os.Getenv("PENSTOCK_ACK_COST") == "" {
		t.Skip("set PENSTOCK_ACK_COST=1: it needs a quiet machine and takes 20 s")
	}
	for _, w := range kinds(32) {
		for lanes, micros := range map[int]time.Duration{12: 1, 1000: 6} {
			most := micros * time.Microsecond
			r := testing.Benchmark(func(b *testing.B) {
				l := newLoop(b, lanes, w)
				for b.Loop() {
					l.ack()
				}
			})
			cost := time.Duration(r.NsPerOp())
			t.Logf("%-8s %5d lanes: %v, %d allocations", w.Name(), lanes, cost, r.AllocsPerOp())
			if cost > most || r.AllocsPerOp() > 0 {
				t.Errorf("%s: an ack with %d lanes takes %v and allocates %d times, want %v and 0",
					w.Name(), lanes, cost, r.AllocsPerOp(), most)
			}
		}
	}
}
