package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/supervise"
)

// memory is a Checkpoint in memory.
type memory struct {
	watermark ledger.Position
	above     []ledger.Range
	load      error
	save      func(context.Context, ledger.Position, []ledger.Range) error // nil: it succeeds

	mu    sync.Mutex // guards the fields below
	saves []time.Duration
	start time.Time
}

func (m *memory) Load(context.Context) (ledger.Position, []ledger.Range, error) {
	m.start = time.Now()
	return m.watermark, m.above, m.load
}

func (m *memory) Save(ctx context.Context, watermark ledger.Position, above []ledger.Range) error {
	if m.save != nil {
		if err := m.save(ctx, watermark, above); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watermark, m.above = watermark, slices.Clone(above)
	m.saves = append(m.saves, time.Since(m.start))
	return nil
}

func num(n int64) ledger.Position { return ledger.Position{Num: n} }

func numRow(n int64) ledger.Position { return num(n) }

// nums returns a source of rows. Each row is a number, which is also its position.
func nums(rows ...int64) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) {
		if len(rows) == 0 {
			return 0, io.EOF
		}
		row := rows[0]
		rows = rows[1:]
		return row, nil
	}
}

func upToRow(n int64) func(context.Context) (int64, error) {
	at := int64(0)
	return func(context.Context) (int64, error) {
		if at == n {
			return 0, io.EOF
		}
		at++
		return at, nil
	}
}

// one returns options for a Book that saves its progress in m and has one worker.
func one(m *memory, deliver func(context.Context, []int64) error) BookOptions[int64] {
	return BookOptions[int64]{
		Checkpoint: m, At: numRow,
		Sender: Options[[]int64]{Lanes: []Lane[[]int64]{{
			Name: "only",
			Worker: WorkerFunc[[]int64](func(ctx context.Context, a Attempt[[]int64]) (Report,
				error) {
				return Report{}, deliver(ctx, a.Value)
			}),
		}}},
	}
}

func acceptAll(context.Context, []int64) error { return nil }

func mustBook(t testing.TB, o BookOptions[int64]) *Book[int64] {
	t.Helper()
	b, err := OpenBook(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBookRefuses(t *testing.T) {
	loading := errors.New("no such table")
	for _, c := range []struct {
		change func(*BookOptions[int64])
		want   string
	}{
		{func(o *BookOptions[int64]) { o.Checkpoint = nil }, "Checkpoint is nil"},
		{func(o *BookOptions[int64]) { o.At = nil }, "At is nil"},
		{func(o *BookOptions[int64]) { o.Replay = -1 }, "Replay is -1"},
		{func(o *BookOptions[int64]) { o.Save = -1 }, "Save is -1ns"},
		{func(o *BookOptions[int64]) {
			o.Sender.Control.Replay = 1
		}, "set BookOptions.Replay instead"},
		{func(o *BookOptions[int64]) {
			o.Sender.Withdrawn = func(Item[[]int64], bool) Withdrawal { return StopSending }
		}, "Sender.Withdrawn is set"},
		{func(o *BookOptions[int64]) { o.Pack.Rows = -1 }, "-1 rows in a batch"},
		{func(o *BookOptions[int64]) { o.Sender.Lanes[0].Name = "" }, "has no name"},
		{func(o *BookOptions[int64]) { o.Sender.Control.Ahead = -1 }, "items ahead"},
		{func(o *BookOptions[int64]) { o.Checkpoint = &memory{load: loading} }, "no such table"},
		{func(o *BookOptions[int64]) {
			o.Checkpoint = &memory{above: []ledger.Range{{From: num(9), To: num(3)}}}
		}, "(9, 3]"},
	} {
		o := one(&memory{}, acceptAll)
		c.change(&o)
		if b, err := OpenBook(t.Context(), o); err == nil || b != nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("OpenBook: %v, %v; want %q", b, err, c.want)
		}
	}
	b := mustBook(t, one(&memory{}, acceptAll))
	if err := b.Run(t.Context(), nil); err == nil {
		t.Error("Run takes no rows at all")
	}
	if err := b.Run(t.Context(), nums(1)); err != nil {
		t.Error(err)
	}
	if err := b.Run(t.Context(), nums(2)); err == nil ||
		!strings.Contains(err.Error(), "open a new Book") {
		t.Errorf("a second Run: %v", err)
	}
}

// TestBookSkipsSettledRows checks that rows that the progress counts as settled are not sent again,
// and that no batch spans them. It does so for readers that begin at different rows, and for rows
// that were deleted from the table after the progress was saved.
func TestBookSkipsSettledRows(t *testing.T) {
	above := []ledger.Range{{From: num(20), To: num(30)}, {From: num(40), To: num(50)}}
	for _, c := range []struct {
		name  string
		rows  []int64
		want  [][]int64
		after int64
		left  []ledger.Range
	}{
		{"as it was", []int64{14, 20, 25, 30, 35, 40, 45, 50, 55},
			[][]int64{{14, 20}, {35, 40}, {55}}, 55, nil},
		{"read from the first row", []int64{1, 7, 12, 14, 20, 21, 30, 31, 40, 50},
			[][]int64{{14, 20}, {31, 40}}, 50, nil},
		{"the ends have vanished", []int64{14, 18, 22, 29, 33, 47, 60},
			[][]int64{{14, 18}, {33}, {60}}, 60, nil},
		{"nothing is left between", []int64{14, 25, 45, 55}, [][]int64{{14}, {55}}, 55, nil},
		{"nothing is left before", []int64{31, 55, 56}, [][]int64{{31}, {55, 56}}, 56, nil},
		{"nothing is left but the last", []int64{55}, [][]int64{{55}}, 55, nil},
		{"the settled ones have vanished", []int64{14, 35, 55}, [][]int64{{14}, {35}, {55}}, 55,
			nil},
		{"nothing new", []int64{22, 45}, nil, 12, above},
		{"it ends before", []int64{14}, [][]int64{{14}}, 14, above},
		{"full before the range", []int64{13, 14, 15, 16, 17, 18, 25},
			[][]int64{{13, 14, 15, 16}, {17, 18}}, 30, above[1:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &memory{watermark: num(12), above: above}
			var mu sync.Mutex
			var got [][]int64
			o := one(m, func(_ context.Context, rows []int64) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, rows)
				return nil
			})
			o.Pack.Rows = 4
			if err := mustBook(t, o).Run(t.Context(), nums(c.rows...)); err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(got, slices.Compare)
			if !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("batches %v, want %v", got, c.want)
			}
			if m.watermark != num(c.after) || !slices.Equal(m.above, c.left) {
				t.Errorf("the mark is %v %v, want %v %v", m.watermark, m.above, c.after, c.left)
			}
		})
	}
}

// TestBookRefusesRows checks that a row with an invalid position ends the run and is in no saved
// progress, so that the next run returns the same error.
func TestBookRefusesRows(t *testing.T) {
	many := make([]int64, MaxTies+1)
	for i := range many {
		many[i] = 7
	}
	for _, c := range []struct {
		rows   []int64
		unique bool
		want   string
	}{
		{[]int64{3, 5, 4}, false, "flow: book: a row at 4 comes after one at 5"},
		{[]int64{3, 5, 0}, false, "flow: book: a row is at 0"},
		{[]int64{3, 5, -7}, true, "flow: book: a row is at -7"},
		{[]int64{3, 5, 5}, true, "flow: book: two rows have the position 5"},
		{many, false, "flow: book: more than 65536 rows have position 7"},
	} {
		for _, size := range []int{1, 2, 1000} {
			m := &memory{}
			for range 2 {
				o := one(m, acceptAll)
				o.Unique, o.Pack.Rows = c.unique, size
				if err := mustBook(t, o).Run(t.Context(), nums(c.rows...)); err == nil ||
					!strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("batches of %d: %v, want %q", size, err, c.want)
				}
				if m.watermark != (ledger.Position{}) {
					t.Errorf("%s: the mark is %v", c.want, m.watermark)
				}
			}
		}
	}
}

// TestBookTies checks that rows of one position always end up in the same batch and at its end,
// regardless of the bounds of a batch.
func TestBookTies(t *testing.T) {
	for _, c := range []struct {
		pack PackOptions[int64]
		want [][]int64
	}{
		{PackOptions[int64]{Rows: 3}, [][]int64{{1, 2, 3, 3, 3}, {4, 5, 5}, {6, 6, 6, 6}, {7}}},
		{PackOptions[int64]{Rows: 1},
			[][]int64{{1}, {2}, {3, 3, 3}, {4}, {5, 5}, {6, 6, 6, 6}, {7}}},
		{PackOptions[int64]{Cost: 2}, [][]int64{{1, 2}, {3, 3, 3}, {4, 5, 5}, {6, 6, 6, 6}, {7}}},
		{PackOptions[int64]{Cut: func(int64, int64) bool {
			return true
		}}, [][]int64{{1}, {2}, {3, 3, 3}, {4}, {5, 5}, {6, 6, 6, 6}, {7}}},
	} {
		var mu sync.Mutex
		var got [][]int64
		o := one(&memory{}, func(_ context.Context, rows []int64) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, rows)
			return nil
		})
		o.Pack = c.pack
		if err := mustBook(t, o).Run(t.Context(),
			nums(1, 2, 3, 3, 3, 4, 5, 5, 6, 6, 6, 6, 7)); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, slices.Compare)
		if !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("batches %v, want %v", got, c.want)
		}
	}
}

// TestBookLooksAhead checks that a full batch waits at most Linger for the next row, and not at all
// if positions are unique. A row that comes too late for its batch ends the run with an error.
func TestBookLooksAhead(t *testing.T) {
	for _, c := range []struct {
		unique bool
		third  int64
		want   string
	}{
		{false, 3, "[1 2] 200ms [3] 1s <nil>"},
		{true, 3, "[1 2] 0s [3] 1s <nil>"},
		{false, 2, "[1 2] 200ms flow: book: a row at 2 comes after the batch"},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, got := time.Now(), ""
			o := one(&memory{}, func(_ context.Context, rows []int64) error {
				got += fmt.Sprint(rows, " ", time.Since(start), " ")
				return nil
			})
			o.Unique, o.Pack = c.unique, PackOptions[int64]{Rows: 2, Linger: 200 * time.Millisecond}
			next := timed(start, io.EOF, 0, 0, time.Second)
			err := mustBook(t, o).Run(t.Context(), func(ctx context.Context) (int64, error) {
				n, err := next(ctx)
				if n == 3 {
					return c.third, err
				}
				return int64(n), err
			})
			if got += fmt.Sprint(err); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

// TestBookReplay checks that the rows in flight, or settled and not saved, never exceed the bound.
// When the bound is reached, the settled rows are saved without waiting for the next scheduled
// save.
func TestBookReplay(t *testing.T) {
	for _, rows := range []int{1, 7, 10, 25, 30, 38, 39, 40} {
		synctest.Test(t, func(t *testing.T) {
			const replay = 40
			m := &memory{}
			var mu sync.Mutex
			var sent, saved int64
			o := one(m, func(_ context.Context, batch []int64) error {
				mu.Lock()
				defer mu.Unlock()
				if sent += int64(len(batch)); sent-saved > replay {
					t.Errorf("batches of %d: %d rows are out, the bound is %d", rows, sent-saved,
						replay)
				}
				return nil
			})
			o.Replay, o.Save, o.Pack.Rows = replay, time.Hour, rows
			// Cut a small batch now and then. Then the next, large batch would exceed the bound,
			// although less than a quarter of the bound has settled, so the Book must save early.
			o.Pack.Cut = func(last, _ int64) bool { return last%43 == 5 }
			o.Sender.Control = control.Config{Window: window.Fixed{Size: 100}}
			m.save = func(ctx context.Context, watermark ledger.Position,
				above []ledger.Range) error {
				_ = sleep(ctx, 10*time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				saved = watermark.Num
				for _, r := range above {
					saved += r.To.Num - r.From.Num
				}
				return nil
			}
			b := mustBook(t, o)
			if err := b.Run(t.Context(), upToRow(1000)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(m.start); took > 15*time.Second || m.watermark != num(1000) {
				t.Errorf("batches of %d: it took %v up to %v", rows, took, m.watermark)
			}
		})
	}
}

// TestBookSaves checks that settled rows are saved within BookOptions.Save, that nothing is saved
// without newly settled rows, and that the last rows are saved at once.
func TestBookSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		o := one(m, acceptAll)
		o.Pack.Rows, o.Unique, o.Save = 1, true, 300*time.Millisecond
		next := timed(time.Now(), io.EOF, 0, 10*time.Millisecond, 500*time.Millisecond,
			5*time.Second, 5*time.Second+50*time.Millisecond)
		if err := mustBook(t, o).Run(t.Context(), func(ctx context.Context) (int64, error) {
			n, err := next(ctx)
			return int64(n), err
		}); err != nil {
			t.Fatal(err)
		}
		ms := time.Millisecond
		if want := []time.Duration{300 * ms, 600 * ms, 5050 * ms}; !slices.Equal(m.saves, want) {
			t.Errorf("saves at %v, want %v", m.saves, want)
		}
		if m.watermark != num(5) {
			t.Errorf("the mark is %v", m.watermark)
		}
	})
}

// TestBookEnds checks that Run returns the reason for its end, and that all settled rows are saved
// by then, unless a save failed.
func TestBookEnds(t *testing.T) {
	broken, full, stopped := errors.New("connection lost"), errors.New("disk full"),
		errors.New("stopped")
	for _, c := range []struct {
		name  string
		next  error // of next after five rows; nil: next waits
		save  error
		stop  bool
		want  []error
		saved int64
	}{
		{"the rows end", io.EOF, nil, false, []error{nil}, 5},
		{"the rows break off", broken, nil, false, []error{broken}, 5},
		{"stopped", nil, nil, true, []error{stopped}, 5},
		{"a save fails", nil, full, false, []error{full}, 0},
		{"the last save fails", io.EOF, full, false, []error{full}, 0},
		{"both", broken, full, false, []error{broken, full}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{save: func(context.Context, ledger.Position, []ledger.Range) error {
				return c.save
			}}
			o := one(m, acceptAll)
			o.Pack = PackOptions[int64]{Rows: 2, Linger: time.Second}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.stop {
				timer := time.AfterFunc(time.Minute, func() { cancel(stopped) })
				defer timer.Stop()
			}
			rows := upToRow(5)
			err := mustBook(t, o).Run(ctx, func(ctx context.Context) (int64, error) {
				row, err := rows(ctx)
				if err != nil && c.next == nil {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				if err != nil {
					return 0, c.next
				}
				return row, nil
			})
			for _, want := range c.want {
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("%s: %v, want %v", c.name, err, want)
				}
			}
			if m.watermark != num(c.saved) {
				t.Errorf("%s: the mark is %v, want %d", c.name, m.watermark, c.saved)
			}
		})
	}
}

// TestBookSavesNothingAfterAFailure checks that a Book does not save again after a failed Save,
// because the saved state is then unknown.
func TestBookSavesNothingAfterAFailure(t *testing.T) {
	full, saves := errors.New("disk full"), 0
	m := &memory{save: func(context.Context, ledger.Position, []ledger.Range) error {
		if saves++; saves == 1 {
			return full
		}
		return nil
	}}
	o := one(m, acceptAll)
	o.Replay, o.Pack.Rows = 100, 10
	err := mustBook(t, o).Run(t.Context(), upToRow(100_000))
	if !errors.Is(err, full) || err.Error() != "flow: book: checkpoint: disk full" || saves != 1 {
		t.Errorf("Run: %v after %d saves", err, saves)
	}
}

// TestBookSavePanics checks that a panic in Save ends the run with an error.
func TestBookSavePanics(t *testing.T) {
	m := &memory{save: func(context.Context, ledger.Position, []ledger.Range) error {
		panic("out of paper")
	}}
	o := one(m, acceptAll)
	o.Replay = 1
	err := mustBook(t, o).Run(t.Context(), upToRow(100_000))
	if p, ok := errors.AsType[*supervise.PanicError](err); !ok || p.Value != "out of paper" {
		t.Errorf("Run: %v", err)
	}
}
