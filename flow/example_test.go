package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
)

// row of a table that is read by time, which is its position; after is the time of the row before.
type row struct{ after, time int64 }

const lastTime = 100_000 // of 50,000 rows, one every other second

// spout reads the rows, packs them, and keeps in a file what is settled: up to when all is, and what is beyond.
type spout struct {
	flow.Producer[[]row]
	mu   sync.Mutex // Next and settled come from different goroutines
	book *ledger.Ledger
	file string
}

type mark struct {
	Watermark ledger.Position
	Above     []ledger.Range
}

func open(file string) *spout {
	var m mark
	if data, err := os.ReadFile(file); err == nil {
		must(json.Unmarshal(data, &m))
	}
	at := m.Watermark.Num
	next := func(context.Context) (row, error) { // SELECT ... WHERE time > ? ORDER BY time
		for _, done := range m.Above { // what had settled before the crash is passed over
			if done.From.Num == at {
				at = done.To.Num
			}
		}
		if at == lastTime {
			return row{}, io.EOF
		}
		at += 2
		return row{at - 2, at}, nil
	}
	gap := func(last, next row) bool { return next.after != last.time }
	rows, err := flow.Pack(flow.PackOptions[row]{Rows: 100, Cut: gap}, next)
	must(err)
	book, err := ledger.New(m.Watermark, m.Above)
	must(err)
	return &spout{Producer: rows, book: book, file: file}
}

// Next opens each batch in the ledger, in the order of the rows.
func (s *spout) Next(ctx context.Context) (flow.Item[[]row], error) {
	it, err := s.Producer.Next(ctx)
	if err != nil {
		return it, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return it, s.book.Open(span(it))
}

// settled is the ack of a batch. A crash repeats what was not in the file.
func (s *spout) settled(it flow.Item[[]row], _ flow.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Settle(span(it))
	w, above := s.book.Mark()
	data, err := json.Marshal(mark{w, above})
	must(errors.Join(err, os.WriteFile(s.file+".new", data, 0o600), os.Rename(s.file+".new", s.file)))
}

func span(it flow.Item[[]row]) ledger.Range {
	first, last := it.Value[0], it.Value[len(it.Value)-1]
	return ledger.Range{From: ledger.Position{Num: first.after}, To: ledger.Position{Num: last.time}}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// bolt is one of twelve workers.
type bolt func(rows []row) error

func (b bolt) Deliver(_ context.Context, a flow.Attempt[[]row]) (flow.Report, error) {
	return flow.Report{}, b(a.Value)
}

// Example delivers a table by time to twelve workers, is cut off at the 301st attempt, and goes on from the mark in its file.
func Example() {
	dir, err := os.MkdirTemp("", "spout")
	must(err)
	defer os.RemoveAll(dir)
	var attempts, rows atomic.Int64
	ctx, cancel := context.WithCancelCause(context.Background())
	deliver := func(batch []row) error {
		switch n := attempts.Add(1); {
		case n == 301:
			cancel(errors.New("power cut"))
		case n%50 == 0:
			return errors.New("connection reset") // another bolt gets it
		}
		rows.Add(int64(len(batch)))
		return nil
	}
	var lanes []flow.Lane[[]row]
	for i := range 12 {
		lanes = append(lanes, flow.Lane[[]row]{Name: fmt.Sprint("bolt", i), Worker: bolt(deliver)})
	}
	for range 2 {
		s := open(filepath.Join(dir, "mark.json"))
		fmt.Println("from the start on:", s.book.Watermark().Num == 0)
		sender, err := flow.New(flow.Options[[]row]{Lanes: lanes, Settled: s.settled})
		must(err)
		fmt.Println(sender.Run(ctx, s), s.book.Watermark().Num == lastTime)
		ctx = context.Background()
	}
	again := rows.Load() - 50_000
	fmt.Println("nothing is missing, and what came again was in flight:", again >= 0 && again <= 12*100)
	// Output:
	// from the start on: true
	// power cut false
	// from the start on: false
	// <nil> true
	// nothing is missing, and what came again was in flight: true
}
