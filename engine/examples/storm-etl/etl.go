package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/flow/window"
)

// tuple is many rows that travel and settle together.
type tuple struct {
	span   ledger.Range
	rows   []row
	packed time.Time
}

// place is a row's: its own time, and its number among those of one time, as text that is ordered as numbers are.
func (r row) place() ledger.Position {
	return ledger.Position{Num: r.rt, Key: fmt.Sprintf("%016x", r.id)}
}

// spout packs the rows of the day into tuples, and keeps in a file up to which time they are stored.
type spout struct {
	logs *source
	file string
	size int

	mu   sync.Mutex // guards what follows: Next and settled run on different goroutines
	book *ledger.Ledger
	done int
}

// mark is what the file holds: everything up to Watermark is stored, and what lies in Above.
type mark struct {
	Watermark ledger.Position
	Above     []ledger.Range
}

func openSpout(logs *source, file string, size int) (*spout, error) {
	var m mark
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the mark: %w", err)
	}
	book, err := ledger.New(m.Watermark, m.Above)
	return &spout{logs: logs, file: file, size: size, book: book}, err
}

// Next implements flow.Producer: the next rows, or those up to what was stored before the crash.
func (s *spout) Next(ctx context.Context) (flow.Item[*tuple], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.book.Next()
	limit, stored := s.book.Limit()
	rows, err := s.logs.page(ctx, from, limit, s.size)
	if err != nil {
		return flow.Item[*tuple]{}, err
	}
	if len(rows) == 0 {
		return flow.Item[*tuple]{}, io.EOF
	}
	t := &tuple{span: ledger.Range{From: from, To: rows[len(rows)-1].place()}, rows: rows, packed: time.Now()}
	if stored && len(rows) < s.size {
		t.span.To = limit
	}
	return flow.Item[*tuple]{Value: t, Cost: float64(len(rows))}, s.book.Open(t.span)
}

// settled moves the mark, and writes it after every tenth tuple: a crash repeats what was in flight, and nine tuples at most.
func (s *spout) settled(it flow.Item[*tuple], _ flow.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Settle(it.Value.span)
	if s.done++; s.done%10 == 0 {
		w, above := s.book.Mark()
		text, _ := json.Marshal(mark{w, above})
		if os.WriteFile(s.file+".new", text, 0o600) == nil {
			_ = os.Rename(s.file+".new", s.file) // the mark before it is as good, and repeats a little more
		}
	}
}

// runNew is the article's algorithm: a window for each bolt, acks, and the checkpoint in the records' own time.
func runNew(ctx context.Context, w *world) error {
	s, err := openSpout(w.logs, filepath.Join(w.dir, "mark.json"), w.tuple)
	if err != nil {
		return err
	}
	var lanes []flow.Lane[*tuple]
	for _, b := range w.bolts {
		lanes = append(lanes, flow.Lane[*tuple]{Name: b.name, Worker: b})
	}
	sender, err := flow.New(flow.Options[*tuple]{
		Lanes:   lanes,
		Control: control.Config{Window: window.Linear{}, Dispatch: dispatch.LeastCompletion{}},
		Settled: s.settled,
		Failed: func(_ flow.Item[*tuple], f flow.Failure) {
			fmt.Fprintln(os.Stderr, "not stored, and sent again:", f.Lane, f.Err)
		},
	})
	if err != nil {
		return err
	}
	go w.watch(ctx, sender)
	return sender.Run(ctx, s)
}

// runOld is what it replaced: tuples are dispatched by a hash, nobody acknowledges anything, and so nothing is known after a crash
// but that the day has to begin again.
func runOld(ctx context.Context, w *world) error {
	var all sync.WaitGroup
	queues := make([]chan *tuple, len(w.bolts))
	for i, b := range w.bolts {
		queues[i] = make(chan *tuple, w.rows/w.tuple+1) // Storm's queues had no bound, either
		all.Go(func() {
			for t := range queues[i] {
				_, _ = b.Deliver(ctx, flow.Attempt[*tuple]{Value: t}) // nobody listens
			}
		})
	}
	var at ledger.Position
	for {
		rows, err := w.logs.page(ctx, at, ledger.Position{}, w.tuple)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		at = rows[len(rows)-1].place()
		queues[hash(rows[0].id)%uint64(len(queues))] <- &tuple{rows: rows, packed: time.Now()}
	}
	for _, q := range queues {
		close(q)
	}
	all.Wait()
	return ctx.Err()
}
