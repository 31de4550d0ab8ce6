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

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
)

const lastRow = 100_000 // the table has a row for each second of a day and a bit; its time is its position

// spout packs the rows of a table by time into items, and keeps the mark of what the bolts have taken in a file.
type spout struct {
	mu   sync.Mutex // Next and Settled come from different goroutines
	book *ledger.Ledger
	file string
	n    int
}

type mark struct {
	Watermark ledger.Position
	Above     []ledger.Range
}

func open(file string) *spout {
	var m mark
	if data, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(data, &m)
	}
	book, err := ledger.New(m.Watermark, m.Above)
	if err != nil {
		panic(err)
	}
	return &spout{book: book, file: file}
}

// Next takes the next 100 rows, or those up to what had settled before the crash.
func (s *spout) Next(context.Context) (flow.Item[ledger.Range], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := ledger.Range{From: s.book.Next()}
	if r.From.Num >= lastRow {
		return flow.Item[ledger.Range]{}, io.EOF
	}
	r.To.Num = min(r.From.Num+100, lastRow)
	if end, ok := s.book.Limit(); ok && end.Compare(r.To) < 0 {
		r.To = end
	}
	return flow.Item[ledger.Range]{Value: r, Cost: float64(r.To.Num - r.From.Num)}, s.book.Open(r)
}

// settled keeps the mark after every tenth item: so a crash repeats what was in flight, and nine items at most.
func (s *spout) settled(it flow.Item[ledger.Range], _ flow.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.Settle(it.Value)
	if s.n++; s.n%10 == 0 || s.book.Watermark().Num == lastRow {
		w, above := s.book.Mark()
		data, _ := json.Marshal(mark{w, above})
		if err := os.WriteFile(s.file, data, 0o600); err != nil {
			panic(err)
		}
	}
}

// bolt counts how often each row arrives. Every 50th item it fails, and during the 601st the lights go out.
type bolt struct {
	mu       sync.Mutex
	arrived  [lastRow + 1]int
	items    int
	powerCut func()
}

func (b *bolt) Deliver(_ context.Context, a flow.Attempt[ledger.Range]) (flow.Report, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.items++; b.items%50 == 0 {
		return flow.Report{}, errors.New("connection reset")
	}
	if b.items == 601 {
		b.powerCut()
	}
	for row := a.Value.From.Num + 1; row <= a.Value.To.Num; row++ {
		b.arrived[row]++
	}
	return flow.Report{}, nil
}

func Example() {
	dir, err := os.MkdirTemp("", "spout")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	b := &bolt{}
	for run := range 2 {
		ctx, stop := context.WithCancelCause(context.Background())
		b.powerCut = func() { stop(errors.New("power cut")) }
		s := open(filepath.Join(dir, "mark.json"))
		var lanes []flow.Lane[ledger.Range]
		for i := range 12 {
			lanes = append(lanes, flow.Lane[ledger.Range]{Name: fmt.Sprint("bolt", i), Worker: b})
		}
		sender, err := flow.New(flow.Options[ledger.Range]{Lanes: lanes, Settled: s.settled})
		if err != nil {
			panic(err)
		}
		fmt.Printf("run %d: %v\n", run+1, sender.Run(ctx, s))
	}
	missing, again := 0, 0
	for _, n := range b.arrived[1:] {
		if n == 0 {
			missing++
		}
		again += max(0, n-1)
	}
	fmt.Println("rows that never arrived:", missing)
	fmt.Println("rows that arrived again are those of nine items at most:", again <= 9*100)
	// Output:
	// run 1: power cut
	// run 2: <nil>
	// rows that never arrived: 0
	// rows that arrived again are those of nine items at most: true
}
