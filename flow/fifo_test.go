package flow

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// fifo is the smallest state machine that follows the protocol of package control. It sends items
// in their order, each to the first lane with room, and has one timeout for all attempts. Tests use
// it to measure the cost or the bookkeeping of the Sender itself, not the decisions of the machine.
type fifo struct {
	window  int           // of each lane
	timeout time.Duration // of an attempt; 0: none
	lanes   []fifoLane
	waiting []uint64
	items   map[uint64]*fifoItem
	pending []fifoAttempt // in the order of their start, which is also the order of their timeouts
	lastID  uint64
	status  control.Status
}

type fifoLane struct {
	up       bool
	inFlight int
}

type fifoItem struct {
	attempts uint32
	running  int
	rejected bool
}

type fifoAttempt struct {
	seq, id uint64
	at      time.Duration
}

func newFifo(window int, timeout time.Duration) *fifo {
	return &fifo{window: window, timeout: timeout, items: make(map[uint64]*fifoItem)}
}

func (f *fifo) Status() control.Status { return f.status }

func (f *fifo) Wake() (time.Duration, bool) {
	if len(f.pending) == 0 || f.timeout == 0 {
		return 0, false
	}
	return f.pending[0].at, true
}

func (f *fifo) free() int {
	return slices.IndexFunc(f.lanes, func(l fifoLane) bool { return l.up && l.inFlight < f.window })
}

func (f *fifo) Room() bool { return len(f.waiting) == 0 && f.free() >= 0 }

func (f *fifo) Returns(bool) bool { return false }

func (f *fifo) Step(e control.Event, out []control.Command) []control.Command {
	switch e.Kind {
	case control.Offer:
		f.items[e.Seq] = &fifoItem{}
		f.waiting = append(f.waiting, e.Seq)
	case control.LaneUp:
		for int(e.Lane) >= len(f.lanes) {
			f.lanes = append(f.lanes, fifoLane{})
		}
		f.lanes[e.Lane].up = true
	case control.LaneDown:
		f.lanes[e.Lane].up = false
	case control.Answer:
		out = f.answer(e, out)
	case control.Cut:
		if e.Pieces < 2 {
			out = append(out, control.Command{Kind: control.DeadLetter, Seq: e.Seq})
		} else {
			delete(f.items, e.Seq)
		}
	case control.Piece:
		f.items[e.Seq] = &fifoItem{}
		switch e.Outcome {
		case control.Delivered:
			out = f.settle(e.Seq, 0, 0, out)
		case control.Rejected:
			out = append(out, control.Command{Kind: control.DeadLetter, Seq: e.Seq})
		default:
			f.waiting = append(f.waiting, e.Seq)
		}
	case control.DeadLettered:
		out = f.settle(e.Seq, -1, 0, out)
	}
	for len(f.pending) > 0 && f.timeout > 0 && f.pending[0].at <= e.Now {
		f.waiting = append(f.waiting, f.pending[0].seq)
		f.pending = f.pending[1:]
	}
	for lane := f.free(); lane >= 0 && len(f.waiting) > 0; lane = f.free() {
		out = f.start(e.Now, int32(lane), out)
	}
	return out
}

func (f *fifo) start(now time.Duration, lane int32, out []control.Command) []control.Command {
	seq := f.waiting[0]
	f.waiting = slices.Delete(f.waiting, 0, 1)
	it := f.items[seq]
	if it == nil {
		return out
	}
	f.lastID++
	it.attempts++
	it.running++
	f.lanes[lane].inFlight++
	if f.timeout > 0 {
		f.pending = append(f.pending, fifoAttempt{seq, f.lastID, now + f.timeout})
	}
	c := control.Command{Kind: control.Start, Seq: seq, Lane: lane, ID: f.lastID,
		Number: it.attempts}
	if f.timeout > 0 {
		c.Expect = now + f.timeout
	}
	return append(out, c)
}

func (f *fifo) answer(e control.Event, out []control.Command) []control.Command {
	f.lanes[e.Lane].inFlight--
	overdue := f.timeout > 0
	if i := slices.IndexFunc(f.pending, func(a fifoAttempt) bool { return a.id == e.ID }); i >= 0 {
		f.pending, overdue = slices.Delete(f.pending, i, i+1), false
	}
	it := f.items[e.Seq]
	if it == nil {
		return out
	}
	it.running--
	switch e.Outcome {
	case control.Delivered:
		return f.settle(e.Seq, e.Lane, e.ID, out)
	case control.Split:
		delete(f.items, e.Seq)
		return out
	case control.Rejected:
		it.rejected = true
	default:
		if !overdue {
			f.waiting = append(f.waiting, e.Seq)
		}
	}
	if it.rejected && it.running == 0 {
		f.waiting = slices.DeleteFunc(f.waiting, func(seq uint64) bool { return seq == e.Seq })
		return append(out, control.Command{Kind: control.Bisect, Seq: e.Seq})
	}
	return out
}

func (f *fifo) settle(seq uint64, lane int32, id uint64, out []control.Command) []control.Command {
	n := f.items[seq].attempts
	delete(f.items, seq)
	f.status.Settled++
	return append(out,
		control.Command{Kind: control.Settle, Seq: seq, Lane: lane, ID: id, Number: n})
}
