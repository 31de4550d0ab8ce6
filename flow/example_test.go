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
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
)

// row of a table of log records, ordered by time, which is its position. after is the time of the row before.
type row struct{ after, time int64 }

// lastTime is that of the last of 50,000 rows, one every other second.
const lastTime = 100_000

// mark is what the file keeps: up to when everything is settled, and what is beyond.
type mark struct {
	Watermark ledger.Position
	Above     []ledger.Range
}

// spout reads the rows by time, packs them, and keeps the mark of what the bolts have taken.
type spout struct {
	flow.Producer[[]row]
	mu      sync.Mutex // Next and Settled come from different goroutines
	book    *ledger.Ledger
	file    string
	settles int
}

func span(rows []row) ledger.Range {
	return ledger.Range{From: ledger.Position{Num: rows[0].after}, To: ledger.Position{Num: rows[len(rows)-1].time}}
}

func open(file string) *spout {
	var m mark
	if data, err := os.ReadFile(file); err == nil {
		must(json.Unmarshal(data, &m))
	}
	book, err := ledger.New(m.Watermark, m.Above)
	must(err)
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
		r := row{after: at, time: at + 2}
		at = r.time
		return r, nil
	}
	packed, err := flow.Pack(flow.PackOptions[row]{
		Rows: 100, Linger: 50 * time.Millisecond,
		Cut: func(last, next row) bool { return next.after != last.time },
	}, next)
	must(err)
	return &spout{Producer: packed, book: book, file: file}
}

// Next opens each batch in the ledger, in the order of the rows.
func (s *spout) Next(ctx context.Context) (flow.Item[[]row], error) {
	it, err := s.Producer.Next(ctx)
	if err != nil {
		return it, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return it, s.book.Open(span(it.Value))
}

// settled writes the mark after every tenth batch: so a crash repeats what was in flight, and nine batches at most.
func (s *spout) settled(it flow.Item[[]row], _ flow.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Settle(span(it.Value))
	if s.settles++; s.settles%10 == 0 || s.book.Watermark().Num == lastTime {
		w, above := s.book.Mark()
		data, err := json.Marshal(mark{w, above})
		must(errors.Join(err, os.WriteFile(s.file, data, 0o600)))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// bolt counts how often each row arrives. Every 50th batch it fails, and during the 301st the lights go out.
type bolt struct {
	mu       sync.Mutex
	arrived  map[int64]int
	batches  int
	powerCut func()
}

func (b *bolt) Deliver(_ context.Context, a flow.Attempt[[]row]) (flow.Report, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.batches++; b.batches%50 == 0 {
		return flow.Report{}, errors.New("connection reset")
	}
	if b.batches == 301 {
		b.powerCut()
	}
	for _, r := range a.Value {
		b.arrived[r.time]++
	}
	return flow.Report{}, nil
}

// Example delivers a table by time to twelve workers, is cut off, and goes on from the mark in its file.
func Example() {
	dir, err := os.MkdirTemp("", "spout")
	must(err)
	defer os.RemoveAll(dir)
	b := &bolt{arrived: map[int64]int{}}
	var lanes []flow.Lane[[]row]
	for i := range 12 {
		lanes = append(lanes, flow.Lane[[]row]{Name: fmt.Sprint("bolt", i), Worker: b})
	}
	for run := range 2 {
		ctx, stop := context.WithCancelCause(context.Background())
		b.powerCut = func() { stop(errors.New("power cut")) }
		s := open(filepath.Join(dir, "mark.json"))
		sender, err := flow.New(flow.Options[[]row]{Lanes: lanes, Settled: s.settled})
		must(err)
		fmt.Printf("run %d: %v\n", run+1, sender.Run(ctx, s))
	}
	again := 0
	for _, n := range b.arrived {
		again += n - 1
	}
	fmt.Println("rows that arrived:", len(b.arrived))
	fmt.Println("rows that arrived again are those of nine batches at most:", again <= 9*100)
	// Output:
	// run 1: power cut
	// run 2: <nil>
	// rows that arrived: 50000
	// rows that arrived again are those of nine batches at most: true
}
