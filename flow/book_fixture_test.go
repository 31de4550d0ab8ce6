package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/checkpoint"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// entryRow is a row of a test table: its number and its position.
type entryRow struct {
	n  int
	at int64
}

func (r entryRow) place() ledger.Position { return ledger.Position{Num: r.at} }

// table returns n rows in the order of their positions. A row has the position of the previous row
// with a probability of 1/tie, or never if tie is 0.
func table(rnd *rand.Rand, n, tie int) []entryRow {
	rows := make([]entryRow, n)
	at := int64(0)
	for i := range rows {
		if i == 0 || tie == 0 || rnd.IntN(tie) > 0 {
			at += 1 + rnd.Int64N(3)
		}
		rows[i] = entryRow{i, at}
	}
	return rows
}

// reading returns a source of the rows after a position, which ends with io.EOF.
func reading(rows []entryRow, after ledger.Position) func(context.Context) (entryRow, error) {
	i := 0
	for i < len(rows) && rows[i].place().Compare(after) <= 0 {
		i++
	}
	return func(context.Context) (entryRow, error) {
		if i == len(rows) {
			return entryRow{}, io.EOF
		}
		i++
		return rows[i-1], nil
	}
}

// isCovered reports whether the progress counts a position as settled.
func isCovered(p, watermark ledger.Position, above []ledger.Range) bool {
	return p.Compare(watermark) <= 0 || slices.ContainsFunc(above, func(r ledger.Range) bool {
		return p.Compare(r.From) > 0 && p.Compare(r.To) <= 0
	})
}

// errCrash ends one run of a bookFixture.
var errCrash = errors.New("crash")

// bookFixture is a table, workers with random outcomes, a file system that loses unsynced data, and
// a program that crashes and restarts. It checks every Save and Load against the rows that the
// workers have received.
type bookFixture struct {
	t      *testing.T
	name   string // for error messages
	rnd    *rand.Rand
	rows   []entryRow
	mem    *vfstest.Mem
	o      BookOptions[entryRow]
	unruly bool // workers fail, refuse, hang, throttle and split

	mu        sync.Mutex  // guards the fields below
	had       map[int]int // deliveries and dead letters, by row
	started   map[int]bool
	life      map[int]bool    // started in this run
	watermark ledger.Position // of the last Save that succeeded
	above     []ledger.Range
	saves     int
	settles   int
}

func newBookFixture(t *testing.T, name string, rnd *rand.Rand, rows []entryRow) *bookFixture {
	return &bookFixture{
		t: t, name: name, rnd: rnd, rows: rows, mem: vfstest.New(), had: map[int]int{},
		started: map[int]bool{},
	}
}

// watched is the Checkpoint of a bookFixture: a file, with checks of every Save and Load.
type watched struct {
	*checkpoint.File
	w *bookFixture
}

func (c watched) Save(ctx context.Context, watermark ledger.Position, above []ledger.Range) error {
	c.w.mu.Lock()
	c.w.saves++
	c.w.mustHave("save", watermark, above)
	c.w.mu.Unlock()
	err := c.File.Save(ctx, watermark, above)
	if err == nil {
		c.w.mu.Lock()
		c.w.watermark, c.w.above = watermark, slices.Clone(above)
		c.w.mu.Unlock()
	}
	return err
}

// mustHave checks that workers have received all rows of the progress. The caller holds mu.
func (w *bookFixture) mustHave(what string, watermark ledger.Position, above []ledger.Range) {
	for _, r := range w.rows {
		if w.had[r.n] == 0 && isCovered(r.place(), watermark, above) {
			w.t.Fatalf("%s: %s of %v %v, but nobody had row %v", w.name, what, watermark, above, r)
		}
	}
}

// mustResume checks the progress that a new run loads: it includes everything that was saved, and
// nothing undelivered. It also checks the rows that the previous run had begun to deliver and that
// are not in the progress: they must not exceed the replay bound.
func (w *bookFixture) mustResume(watermark ledger.Position, above []ledger.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustHave("resume", watermark, above)
	again := 0
	for _, r := range w.rows {
		in := isCovered(r.place(), watermark, above)
		if !in && isCovered(r.place(), w.watermark, w.above) {
			w.t.Fatalf("%s: row %v was saved in %v %v, and is not in %v %v", w.name, r, w.watermark,
				w.above, watermark, above)
		}
		if !in && w.life[r.n] {
			again++
		}
	}
	if int64(again) > w.o.Replay {
		w.t.Fatalf("%s: a crash repeats %d rows, and the bound is %d", w.name, again, w.o.Replay)
	}
	w.life = map[int]bool{}
	w.watermark, w.above = watermark, above
}

// begun records an attempt. It fails the test if a row was settled before this run, or if the rows
// are not in order.
func (w *bookFixture) begun(rows []entryRow, watermark ledger.Position, above []ledger.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range rows {
		if isCovered(r.place(), watermark, above) {
			w.t.Errorf("%s: row %v was settled before, and is sent again", w.name, r)
		}
		if i > 0 && r.n <= rows[i-1].n {
			w.t.Errorf("%s: row %v follows %v in a batch", w.name, r, rows[i-1])
		}
		w.started[r.n], w.life[r.n] = true, true
	}
}

func (w *bookFixture) have(rows []entryRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rows {
		w.had[r.n]++
	}
}

// mood returns the random behavior of a worker for its next batch: the kind, the delay, and a seed
// for further random choices.
func (w *bookFixture) mood() (kind int, wait time.Duration, seed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(40), time.Duration(w.rnd.IntN(50)) * time.Millisecond, w.rnd.Uint64()
}

func (w *bookFixture) refuses(r entryRow) bool { return w.unruly && r.n%61 == 60 }

// deliver is the Deliver of every worker.
func (w *bookFixture) deliver(ctx context.Context, rows []entryRow,
	piece func([]entryRow) Item[[]entryRow]) error {
	kind, wait, seed := w.mood()
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	if !w.unruly {
		w.have(rows)
		return nil
	}
	switch {
	case kind == 0:
		<-ctx.Done()
		return context.Cause(ctx)
	case kind == 1:
		w.have(rows) // delivered, but the acknowledgment is lost
		return errors.New("connection reset")
	case kind < 6:
		return errors.New("connection refused")
	case kind == 6:
		return &Throttled{After: wait, Err: errors.New("later")}
	case kind < 14:
		return w.part(rows, rand.New(rand.NewPCG(seed, 1)), piece)
	}
	if slices.ContainsFunc(rows, w.refuses) {
		return &Rejected{Err: errors.New("never")}
	}
	w.have(rows)
	return nil
}

// part delivers a random part of the rows, refuses the bad ones and leaves the rest.
func (w *bookFixture) part(rows []entryRow, rnd *rand.Rand,
	piece func([]entryRow) Item[[]entryRow]) error {
	s := &Split[[]entryRow]{Err: errors.New("in part")}
	var done, rest, refused []entryRow
	for _, r := range rows {
		switch {
		case w.refuses(r):
			refused = append(refused, r)
		case rnd.IntN(2) == 0:
			done = append(done, r)
		default:
			rest = append(rest, r)
		}
	}
	w.have(done)
	for _, p := range []struct {
		to   *[]Item[[]entryRow]
		rows []entryRow
	}{{&s.Done, done}, {&s.Rest, rest}, {&s.Refused, refused}} {
		if len(p.rows) > 0 {
			*p.to = append(*p.to, piece(p.rows))
		}
	}
	return s
}

// ending describes how a run ends before the end of the rows. Zero fields have no effect.
type ending struct {
	settle int           // a callback panics at this settle
	after  time.Duration // the context ends after this time
	save   int           // this call to the new checkpoint file fails
}

// live runs the program once, until all rows are delivered or the run ends early (see the type
// ending). It returns the result of Run, or errCrash after a simulated crash.
func (w *bookFixture) live(end ending) (err error) {
	w.mu.Lock()
	w.settles = 0
	w.mu.Unlock()
	dir, err := w.mem.MakeDir("/state", 0o700)
	if err != nil {
		w.t.Fatal(err)
	}
	defer dir.Close()
	file, err := checkpoint.OpenIn(w.mem, "/state/mark")
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithCancelCause(w.t.Context())
	defer cancel(nil)
	if end.after > 0 {
		timer := time.AfterFunc(end.after, func() { cancel(errCrash) })
		defer timer.Stop()
	}
	var book *Book[entryRow]
	o := w.o
	o.Checkpoint, o.At = watched{file, w}, entryRow.place
	o.Sender.DeadLetter = func(_ context.Context, it Item[[]entryRow], _ error) error {
		w.have(it.Value)
		return nil
	}
	o.Sender.Settled = func(Item[[]entryRow], Settlement) {
		if w.settles++; w.settles == end.settle {
			panic(errCrash)
		}
	}
	var watermark ledger.Position
	var above []ledger.Range
	for i := range 4 {
		o.Sender.Lanes = append(o.Sender.Lanes, Lane[[]entryRow]{
			Name: fmt.Sprint("worker ", i),
			Worker: WorkerFunc[[]entryRow](func(ctx context.Context, a Attempt[[]entryRow]) (Report,
				error) {
				w.begun(a.Value, watermark, above)
				return Report{}, w.deliver(ctx, a.Value, book.Piece)
			}),
		})
	}
	if book, err = OpenBook(ctx, o); err != nil {
		w.t.Fatalf("%s: %v", w.name, err)
	}
	watermark, above = book.Progress()
	w.mustResume(watermark, above)
	if end.save > 0 {
		w.mem.Fail(vfstest.Fault{Path: "/state/mark.new", Nth: end.save, Err: errCrash})
	}
	defer func() {
		if p := recover(); p != nil {
			if err, _ = p.(error); !errors.Is(err, errCrash) {
				panic(p)
			}
			err = errCrash
		}
	}()
	return book.Run(ctx, reading(w.rows, watermark))
}

// finish runs until all rows are settled, and checks that each one was delivered or dead-lettered.
func (w *bookFixture) finish() {
	if err := w.live(ending{}); err != nil {
		w.t.Fatalf("%s: the last life: %v", w.name, err)
	}
	w.mustResumeAtEnd()
}

func (w *bookFixture) mustResumeAtEnd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watermark != w.rows[len(w.rows)-1].place() || len(w.above) > 0 {
		w.t.Errorf("%s: the last mark is %v %v", w.name, w.watermark, w.above)
	}
	if missing := len(w.rows) - len(slices.Collect(maps.Keys(w.had))); missing > 0 {
		w.t.Errorf("%s: %d rows are lost", w.name, missing)
	}
}

// TestBookAtRandom runs a Book that crashes repeatedly in every way, with random tables, batches,
// bounds and workers, and checks the rules of bookFixture.
func TestBookAtRandom(t *testing.T) {
	crashed := map[string]int{}
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			w := newBookFixture(t, fmt.Sprint("seed ", seed), rnd,
				table(rnd, 200+rnd.IntN(400), []int{0, 2, 3, 8}[rnd.IntN(4)]))
			w.unruly = rnd.IntN(4) > 0
			w.o.Pack = PackOptions[entryRow]{Rows: 1 + rnd.IntN(20),
				Linger: time.Duration(rnd.IntN(3)) * time.Second}
			w.o.Replay = int64(40 + rnd.IntN(150)) // more than a batch with its ties
			w.o.Save = time.Duration(1+rnd.IntN(300)) * time.Millisecond
			w.o.Sender.Control.Seed = seed
			for life := range rnd.IntN(5) {
				var end ending
				switch rnd.IntN(3) {
				case 0:
					end.settle = 1 + rnd.IntN(60)
				case 1:
					end.after = time.Duration(1+rnd.IntN(800)) * time.Millisecond
				case 2:
					end.save = 1 + rnd.IntN(30)
				}
				if err := w.live(end); errors.Is(err, errCrash) {
					crashed[fmt.Sprintf("%v %v %v", end.settle > 0, end.after > 0, end.save > 0)]++
				} else if err != nil {
					t.Fatalf("%s, life %d: %v", w.name, life, err)
				}
				w.mem.Heal()
				data := []vfstest.Data{vfstest.DataAll, vfstest.DataNone, vfstest.DataPrefix,
					vfstest.DataTorn}[rnd.IntN(4)]
				names := []vfstest.Names{vfstest.NamesAll, vfstest.NamesNone,
					vfstest.NamesSome}[rnd.IntN(3)]
				w.mem = w.mem.Crash(data, names, rnd.Uint64())
			}
			w.finish()
		})
	}
	if len(crashed) != 3 || slices.Min(slices.Collect(maps.Values(crashed))) < 20 {
		t.Errorf("crashes by settle, context and save: %v; want 20 of each", crashed)
	}
}
