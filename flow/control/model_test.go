package control_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// model is a simple sender around a machine. A test chooses the answers of its workers. The model
// derives the state of all items from the machine's commands, and fails the test if a command
// breaks a promise of the package.
type model struct {
	t          *testing.T
	cfg        control.Config
	size       int // of the fixed window; 0: not fixed
	m          *control.Machine
	twin       *control.Machine // steps the same events
	out        []control.Command
	out2       []control.Command
	now        time.Duration
	steps      int
	log        []event
	seq        uint64
	items      map[uint64]*modelItem
	order      []*modelItem // live, in sequence
	tries      map[uint64]*modelTry
	lanes      map[int32]*modelLane
	asked      []ask // Bisect and DeadLetter not yet answered
	answering  *modelTry
	died       bool // the item of the next answer, or its first Retryable piece, killed a worker
	partial    bool // more Piece events follow
	starts     uint64
	hedged     uint64
	again      uint64
	dups       uint64
	done       uint64
	withdrawn  uint64
	unsaved    int64 // bytes settled and not saved
	largest    int64 // bytes of the largest item
	strict     bool  // no lane was ever Ordered, so duplicates can be counted at once
	unreturned int   // attempts that took a token of the budget and have not returned it
}

// event is one step in the log that a failure prints.
type event struct {
	control.Event
	commands []control.Command
}

type modelItem struct {
	seq     uint64
	bytes   int64
	cost    float64
	keys    []uint32
	starts  uint32
	deaths  int
	owes    bool // its next attempt takes a token: it failed or was overdue, and was not sent since
	running int
	settled bool
	piece   bool
	special bool // a piece that was delivered or refused by a Split: it may settle out of order
	gone    bool // replaced by its pieces
	recall  bool // withdrawn: no attempt may start
	aborted bool // withdrawn, and its attempts may be canceled
	// attempt that delivered the item at an Ordered lane; the item settles when all earlier
	// attempts of the run are concluded
	held *modelTry
}

type modelTry struct {
	id         uint64
	item       *modelItem
	lane       int32
	expect     time.Duration
	overdue    bool
	canceled   bool
	paid       bool
	ordered    bool
	apart      bool // of a suspect: takes no place in the window
	run, place uint32
}

type modelLane struct {
	up          bool
	limits      control.Limits
	out         int // attempts not answered
	awaited     int
	run         uint32
	next        uint32 // next place
	failed      bool   // an attempt of the run was not delivered
	firstFailed uint32 // place of the first such attempt
}

type ask struct {
	seq        uint64
	deadLetter bool
}

func newModel(t *testing.T, cfg control.Config, size int) *model {
	t.Helper()
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &model{
		t: t, cfg: cfg, size: size, m: m, twin: twin,
		strict: true, items: map[uint64]*modelItem{}, tries: map[uint64]*modelTry{}, lanes: map[int32]*modelLane{},
	}
}

func (w *model) fail(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log[max(0, len(w.log)-200):] {
		w.t.Logf("event %+v", l.Event)
		for _, c := range l.commands {
			w.t.Logf("    command %+v", c)
		}
	}
	w.t.Fatalf(format, args...)
}

func (w *model) step(e control.Event) {
	w.t.Helper()
	e.Now = w.now
	w.out = w.m.Step(e, w.out[:0])
	w.out2 = w.twin.Step(e, w.out2[:0])
	if !slices.Equal(w.out, w.out2) {
		w.fail("the same events gave %v and %v", w.out, w.out2)
	}
	if e.Kind == control.Tick {
		for _, x := range w.tries {
			if x.expect > 0 && x.expect <= w.now && !x.overdue {
				x.overdue = true
				x.item.owes = x.item.owes || len(x.item.keys) == 0
				w.lanes[x.lane].awaited--
			}
		}
	}
	w.log = append(w.log, event{e, slices.Clone(w.out)})
	for _, c := range w.out {
		w.obey(c)
	}
	if got, want := w.m.Idle(), len(w.order) == 0; got != want && !w.partial {
		w.fail("Idle() = %v with %d items live", got, len(w.order))
	}
	if seq := w.m.Overlooked(); seq != 0 {
		w.fail("item %d is blocked, although its turn has come", seq)
	}
	if w.steps++; w.steps%16 == 0 {
		w.check()
	}
}

func (w *model) obey(c control.Command) {
	w.t.Helper()
	it := w.items[c.Seq]
	if it == nil {
		w.fail("command %+v for an item that was never offered", c)
	}
	switch c.Kind {
	case control.Start:
		w.start(c, it)
	case control.Cancel:
		x := w.tries[c.ID]
		switch {
		case x == nil || x.item != it:
			w.fail("cancel of an attempt that does not run: %+v", c)
		case x.canceled || c.Reason == control.Withdrawn && !it.aborted ||
			c.Reason != control.Withdrawn && (!it.settled || x.ordered):
			w.fail("cancel is not safe: %+v", c)
		}
		x.canceled = true
	case control.Settle:
		w.settle(c, it)
	case control.Bisect, control.DeadLetter:
		if w.strict && c.Reason == control.Deadly && (c.Count == 0 ||
			int(c.Count) != it.deaths || it.deaths < w.cfg.Poison.Deaths && !it.piece) {
			w.fail("%+v of an item that %d workers have died of", c, it.deaths)
		}
		if it.running > 0 || it.settled {
			w.fail("%+v while %d attempts run (settled: %v)", c, it.running, it.settled)
		}
		w.asked = append(w.asked, ask{c.Seq, c.Kind == control.DeadLetter})
	}
}

// hanging returns the number of a lane's attempts that have given up their places in the window
// because they hang, and that are not overdue.
func (w *model) hanging(lane int32) int {
	l, _ := w.m.Lane(lane)
	return l.Hanging
}

func (w *model) start(c control.Command, it *modelItem) {
	w.t.Helper()
	l := w.lanes[c.Lane]
	switch {
	case l == nil || !l.up:
		w.fail("start at lane %d, which is down", c.Lane)
	case it.recall:
		w.fail("start of item %d, which was withdrawn", c.Seq)
	case it.settled || it.gone || it.special:
		w.fail("start of item %d, which has settled", c.Seq)
	case w.tries[c.ID] != nil:
		w.fail("attempt %d is started twice", c.ID)
	case l.limits.InFlight > 0 && l.out >= l.limits.InFlight:
		w.fail("lane %d has %d in flight at a limit of %d", c.Lane, l.out, l.limits.InFlight)
	case w.size > 0 && l.awaited-w.hanging(c.Lane) >= w.size && c.Reason != control.SuspectAttempt:
		w.fail("lane %d has %d in flight at a window of %d", c.Lane, l.awaited-w.hanging(c.Lane), w.size)
	case c.Number != it.starts+1:
		w.fail("start of item %d is number %d after %d", c.Seq, c.Number, it.starts)
	case w.cfg.Timeout >= 0 && c.Expect <= w.now && c.Reason != control.SuspectAttempt:
		w.fail("attempt %d is overdue as it starts", c.ID)
	}
	for _, a := range w.asked {
		if a.seq == c.Seq {
			w.fail("start of item %d, which is being cut or dead-lettered", c.Seq)
		}
	}
	for _, x := range w.tries {
		if x.item == it && (x.lane == c.Lane || len(it.keys) > 0 || !x.overdue &&
			c.Reason != control.HedgeAttempt) {
			w.fail("item %d is started while attempt %d of it runs at lane %d", c.Seq, x.id, x.lane)
		}
		if shares(x.item, it) && !(x.lane == c.Lane && l.limits.Ordered) {
			w.fail("items %d and %d share a key and are both in flight", it.seq, x.item.seq)
		}
	}
	for _, o := range w.order {
		if o == it {
			break
		}
		if shares(o, it) && o.running == 0 && o.held == nil {
			w.fail("item %d starts before item %d of the same key", it.seq, o.seq)
		}
	}
	x := &modelTry{id: c.ID, item: it, lane: c.Lane, expect: c.Expect, ordered: l.limits.Ordered,
		run: c.Run, place: c.Index}
	if x.ordered {
		if l.out == 0 && c.Run != l.run {
			l.run, l.next, l.failed = c.Run, 0, false
		}
		if c.Run != l.run || c.Index != l.next || l.failed {
			w.fail("lane %d: run %d place %d, want run %d place %d (failed: %v)", c.Lane, c.Run,
				c.Index, l.run, l.next, l.failed)
		}
		l.next++
	}
	w.spend(c, it, x)
	w.tries[c.ID] = x
	l.out++
	if x.apart = c.Reason == control.SuspectAttempt; !x.apart {
		l.awaited++
	}
	it.running++
	it.held = nil
	it.starts++
	w.starts++
	if it.starts > 1 {
		w.again++
	}
	w.checkHedge(c, it, x)
}

func (w *model) settle(c control.Command, it *modelItem) {
	w.t.Helper()
	if it.settled {
		w.fail("item %d settles twice", c.Seq)
	}
	if c.Number != it.starts && !it.special {
		w.fail("item %d settles after %d attempts, says %d", c.Seq, it.starts, c.Number)
	}
	if c.Reason == control.Withdrawn {
		w.settleWithdrawn(c, it)
		return
	}
	for _, o := range w.order {
		if o == it {
			break
		}
		if shares(o, it) && !it.special {
			w.fail("item %d settles before item %d of the same key", it.seq, o.seq)
		}
	}
	it.settled = true
	if x := w.answering; x != nil && x.id == c.ID && x.paid {
		w.unreturned--
	}
	w.done++
	w.unsaved += it.bytes
	w.remove(it)
}

// settleWithdrawn handles the Settle of an item that was withdrawn and not delivered.
func (w *model) settleWithdrawn(c control.Command, it *modelItem) {
	w.t.Helper()
	if !it.recall || it.running > 0 || c.Lane >= 0 {
		w.fail("%+v of an item with %d attempts (withdrawn: %v)", c, it.running, it.recall)
	}
	it.settled = true
	w.withdrawn++
	w.remove(it)
}

func (w *model) remove(it *modelItem) {
	i := slices.Index(w.order, it)
	if i < 0 {
		w.fail("item %d is not live", it.seq)
	}
	w.order = slices.Delete(w.order, i, i+1)
}

func shares(a, b *modelItem) bool {
	if a == b {
		return false
	}
	return slices.ContainsFunc(a.keys, func(k uint32) bool { return slices.Contains(b.keys, k) })
}

// check compares the machine's status with the model.
func (w *model) check() {
	w.t.Helper()
	s := w.m.Status()
	type figures struct{ attempts, again, settled, withdrawn, dups, hedged uint64 }
	got := figures{s.Attempts, s.Redeliveries, s.Settled, s.Withdrawn, s.Duplicates, s.Hedged}
	if !w.strict {
		got.dups = w.dups
	}
	if want := (figures{w.starts, w.again, w.done, w.withdrawn, w.dups, w.hedged}); got != want {
		w.fail("figures are %+v, want %+v", got, want)
	}
	var held int64
	for _, it := range w.order {
		if it.starts > 0 || it.piece {
			held += it.bytes
		}
	}
	if w.cfg.Replay > 0 && held+w.unsaved > max(w.cfg.Replay, w.largest) {
		w.fail("%d bytes are sent or unsaved at a replay bound of %d", held+w.unsaved, w.cfg.Replay)
	}
	w.checkBudget()
	last := 0 // lanes with a lower number may all be open
	for _, l := range w.lanes {
		if l.up {
			last = max(last, l.limits.Standby)
		}
	}
	open := 0
	for _, l := range s.Lanes {
		if l.State.String() == "OPEN" && w.lanes[l.Lane].limits.Standby == last {
			open++
		}
		if l.InFlight != w.lanes[l.Lane].out {
			w.fail("lane %d has %d in flight, says %d", l.Lane, w.lanes[l.Lane].out, l.InFlight)
		}
	}
	ups := 0
	for _, l := range w.lanes {
		if l.up && l.limits.Standby == last {
			ups++
		}
	}
	if most := max(1, ups/2); open > most && !w.hasFewerLanes() {
		w.fail("%d of %d lanes are open", open, ups)
	}
	if !reflect.DeepEqual(s, w.twin.Status()) {
		w.fail("machines with equal events have different status")
	}
}

// hasFewerLanes reports whether lanes have gone down. If so, more than half of the remaining ones
// may have an open breaker.
func (w *model) hasFewerLanes() bool {
	for _, l := range w.lanes {
		if !l.up {
			return true
		}
	}
	return false
}
