package flow_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/flow/window"
)

// search_test.go searches the states of a machine and its ledger with up to six batches and three
// workers. Two attempts of each batch may fail. Answers come in any order, with a checkpoint at any
// moment and one crash.
const (
	searchWorkers = 3
	// attempts of a batch that may return undelivered or become overdue, per life of the process
	searchWrong = 2
)

// move is one event of the search.
type move struct {
	// kind is 'a' for an ack, 'n' for a nack, 's' for a save and 'c' for a crash. With 't', time
	// passes until an attempt is overdue, and with 'w' until the machine's next wake-up.
	kind byte
	id   uint64 // attempt
}

// searchTry is a running attempt, which has not been answered.
type searchTry struct {
	id      uint64
	batch   int
	lane    int32
	expect  time.Duration
	overdue bool
	hedge   bool
	apart   bool // of a suspect: takes no place in the window
}

// searched is a machine with its ledger, its workers and its checkpoint.
type searched struct {
	batches int
	hedges  bool // the machine hedges, and has a tight budget
	m       *control.Machine
	now     time.Duration
	out     []control.Command
	ledger  *ledger.Ledger
	tries   []searchTry
	bySeq   map[uint64]int
	settled []bool // in this life of the process
	wrong   []int
	// by batch: a bit for each worker that failed it or left it overdue, in this life of the
	// process
	failed  []byte
	taken   []bool // by batch: some worker has received it, perhaps before the crash
	mark    ledger.Position
	above   []ledger.Range
	crashed bool
	hedged  int    // hedges, in this life of the process
	starts  int    // of all attempts
	known   bool   // stateAt is replaying moves to a known state
	broken  string // the violated rule
}

// boot starts a new process, with a machine and a ledger that resume from the checkpoint.
func (s *searched) boot() {
	cfg := control.Config{
		Window: window.Fixed{Size: 1}, Dispatch: dispatch.RoundRobin{}, Timeout: time.Second,
		Retry: backoff.Fixed(10 * time.Millisecond), Breaker: control.Breaker{Failures: -1},
	}
	if s.hedges {
		cfg.Hedge = control.Hedge{Share: 1, Least: 1}
		cfg.Budget = control.Budget{Share: 0.01, PerSecond: 5, Burst: 1}
	}
	m, err := control.New(cfg)
	if err != nil {
		panic(err)
	}
	l, err := ledger.New(s.mark, s.above)
	if err != nil {
		panic(err)
	}
	s.m, s.ledger, s.now, s.tries = m, l, 0, nil
	s.hedged, s.starts = 0, 0
	s.bySeq, s.settled, s.wrong = map[uint64]int{}, make([]bool, s.batches), make([]int, s.batches)
	s.failed = make([]byte, s.batches)
	for b := range s.batches {
		s.settled[b] = s.saved(b)
	}
	for i := range searchWorkers {
		s.step(control.Event{Kind: control.LaneUp, Lane: int32(i)})
	}
	if s.hedges {
		s.letEachAnswer()
	}
	for b := range s.batches {
		if s.settled[b] {
			continue
		}
		if err := l.Open(spanOf(b)); err != nil {
			s.fail("batch %d cannot be opened: %v", b, err)
			return
		}
		seq := uint64(b) + 1 + searchWorkers
		s.bySeq[seq] = b
		s.step(control.Event{Kind: control.Offer, Seq: seq, Cost: 1, Bytes: 10})
	}
}

// letEachAnswer lets each worker answer once before the search begins. Otherwise the search would
// see no hedges at first: the machine neither sends a hedge to a worker that has never answered,
// nor hedges its attempts.
func (s *searched) letEachAnswer() {
	for i := range searchWorkers {
		s.out = s.m.Step(control.Event{Kind: control.Offer, Seq: uint64(i) + 1, Cost: 1, Bytes: 10},
			s.out[:0])
		s.out = s.m.Step(control.Event{Kind: control.Answer, ID: s.out[0].ID,
			Outcome: control.Delivered}, s.out[:0])
	}
}

func spanOf(b int) ledger.Range {
	return ledger.Range{From: ledger.Position{Num: int64(b)},
		To: ledger.Position{Num: int64(b) + 1}}
}

// saved reports whether the checkpoint covers batch b.
func (s *searched) saved(b int) bool {
	if s.mark.Num > int64(b) {
		return true
	}
	for _, r := range s.above {
		if r.From.Num <= int64(b) && int64(b) < r.To.Num {
			return true
		}
	}
	return false
}

func (s *searched) fail(format string, args ...any) {
	if s.broken == "" {
		s.broken = fmt.Sprintf(format, args...)
	}
}

func (s *searched) step(e control.Event) {
	e.Now = s.now
	s.out = s.m.Step(e, s.out[:0])
	for _, c := range s.out {
		b, known := s.bySeq[c.Seq]
		switch c.Kind {
		case control.Start:
			s.started(c, b, known)
		case control.Settle:
			if !known || s.settled[b] {
				s.fail("batch %d settles twice, or was never offered", b)
				continue
			}
			s.settled[b] = true
			if !s.taken[b] {
				s.fail("batch %d settles and no worker has it", b)
			}
			if !s.ledger.Settle(spanOf(b)) {
				s.fail("the ledger had batch %d as settled", b)
			}
		case control.Cancel: // the attempt must still answer, so it stays in tries
		default:
			s.fail("command %d, and nothing was refused", c.Kind)
		}
	}
	s.check()
}

func (s *searched) started(c control.Command, b int, known bool) {
	if !known || s.settled[b] {
		s.fail("batch %d starts after it has settled, or was never offered", b)
	}
	for _, x := range s.tries {
		if x.lane == c.Lane && !x.overdue && !x.apart && c.Reason != control.SuspectAttempt {
			s.fail("two attempts in a window of one at worker %d", c.Lane)
		}
		if x.batch == b && (x.lane == c.Lane || !x.overdue && c.Reason != control.HedgeAttempt) {
			s.fail("batch %d starts at worker %d while an attempt runs at %d", b, c.Lane, x.lane)
		}
	}
	if s.starts++; c.Reason == control.HedgeAttempt {
		s.hedged++
		if slices.Contains(s.settled[:b], false) {
			s.fail("batch %d has a hedge and does not hold the watermark: %v", b, s.settled)
		}
		if 2*s.hedged > s.starts+searchWorkers {
			s.fail("%d hedges of %d attempts", s.hedged, s.starts)
		}
	}
	x := searchTry{id: c.ID, batch: b, lane: c.Lane, expect: c.Expect,
		hedge: c.Reason == control.HedgeAttempt,
		apart: c.Reason == control.SuspectAttempt}
	if x.apart {
		x.expect = math.MaxInt64 // never overdue
	}
	s.tries = append(s.tries, x)
}

// check compares the ledger with the batches that the workers have received. It does nothing while
// stateAt replays moves, because these states were checked before.
func (s *searched) check() {
	if s.known {
		return
	}
	mark, above := s.ledger.Progress()
	for b := range s.batches {
		covered := mark.Num > int64(b)
		for _, r := range above {
			covered = covered || r.From.Num <= int64(b) && int64(b) < r.To.Num
		}
		if covered != s.settled[b] {
			s.fail("the ledger has batch %d settled: %v; it is: %v", b, covered, s.settled[b])
		}
		if covered && !s.taken[b] {
			s.fail("batch %d is settled and no worker has it", b)
		}
	}
}

// moves returns the moves that are possible now.
func (s *searched) moves() []move {
	var list []move
	ripe := false
	for _, x := range s.tries {
		list = append(list, move{'a', x.id})
		if s.wrong[x.batch] < searchWrong || x.overdue {
			list = append(list, move{'n', x.id})
		}
		ripe = ripe || !x.overdue && !x.apart && s.wrong[x.batch] < searchWrong
	}
	if ripe {
		list = append(list, move{kind: 't'})
	}
	if mark, above := s.ledger.Progress(); !s.crashed &&
		(mark != s.mark || !slices.Equal(above, s.above)) {
		list = append(list, move{kind: 's'})
	}
	if !s.crashed {
		list = append(list, move{kind: 'c'})
	}
	if at, ok := s.m.Wake(); ok && at > s.now && (!s.awaits() || s.hedges && at < s.nextOverdue()) {
		list = append(list, move{kind: 'w'})
	}
	return list
}

// awaits reports whether a running attempt is not overdue yet.
func (s *searched) awaits() bool {
	return slices.ContainsFunc(s.tries, func(x searchTry) bool { return !x.overdue })
}

func (s *searched) do(v move) {
	switch v.kind {
	case 'a', 'n':
		i := slices.IndexFunc(s.tries, func(x searchTry) bool { return x.id == v.id })
		x := s.tries[i]
		s.tries = slices.Delete(s.tries, i, i+1)
		out := control.Retryable
		if v.kind == 'a' {
			out = control.Delivered
			s.taken[x.batch] = true
		} else if !x.overdue {
			s.wrong[x.batch]++
			s.failed[x.batch] |= 1 << x.lane
		}
		s.step(control.Event{Kind: control.Answer, ID: x.id, Outcome: out})
	case 't':
		s.overdue()
	case 's':
		s.mark, s.above = s.ledger.Progress()
	case 'c':
		s.crashed = true
		s.boot()
	case 'w':
		at, _ := s.m.Wake()
		s.now = at
		s.step(control.Event{Kind: control.Tick})
	}
}

// overdue lets time pass until the next attempt is overdue.
func (s *searched) overdue() {
	next := s.nextOverdue()
	for {
		at, ok := s.m.Wake()
		if !ok || at > next {
			s.fail("an attempt is due at %v, and the machine wants no Tick then", next)
			return
		}
		s.now = max(s.now, at)
		for i := range s.tries {
			if x := &s.tries[i]; !x.overdue && x.expect <= s.now {
				x.overdue = true
				s.wrong[x.batch]++
				s.failed[x.batch] |= 1 << x.lane
			}
		}
		s.step(control.Event{Kind: control.Tick})
		if s.now >= next {
			return
		}
	}
}

// nextOverdue returns the time at which the next attempt becomes overdue.
func (s *searched) nextOverdue() time.Duration {
	next := time.Duration(1<<63 - 1)
	for _, x := range s.tries {
		if !x.overdue {
			next = min(next, x.expect)
		}
	}
	return next
}

// key returns a string that is equal for equal states.
func (s *searched) key() string {
	var k []byte
	for b := range s.batches {
		flags := byte(s.wrong[b] << 2)
		if s.settled[b] {
			flags |= 1
		}
		if s.taken[b] {
			flags |= 2
		}
		k = append(k, flags, s.failed[b])
	}
	tries := slices.Clone(s.tries)
	slices.SortFunc(tries, func(x, y searchTry) int {
		return (x.batch*searchWorkers + int(x.lane)) - (y.batch*searchWorkers + int(y.lane))
	})
	for _, x := range tries {
		f := byte(x.batch<<4) | byte(x.lane<<2)
		if x.overdue {
			f |= 1
		}
		if x.hedge {
			f |= 2
		}
		k = append(k, f)
	}
	k = append(k, 0xff)
	if s.crashed {
		k = append(k, 1)
	}
	k = binary.AppendVarint(k, s.mark.Num)
	for _, r := range s.above {
		k = binary.AppendVarint(k, r.From.Num)
		k = binary.AppendVarint(k, r.To.Num)
	}
	return string(k)
}
