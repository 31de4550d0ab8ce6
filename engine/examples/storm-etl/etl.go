package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/flow/window"
)

// tuple is a group of rows that are sent together.
type tuple struct {
	span   ledger.Range
	rows   []row
	packed time.Time
}

// spout reads the rows that are not stored yet, and packs them into tuples. It saves a mark in a
// file. The mark states which rows are stored.
type spout struct {
	w      *environment
	page   []row // rows that were read ahead
	read   mark  // position read so far, and stored rows to skip
	gaps   int   // number of stored ranges skipped so far
	tuples flow.Producer[[]row]

	mu       sync.Mutex // guards the fields below: Next and settled run on different goroutines
	progress *ledger.Ledger
	done     int
}

// row returns the next row that is not stored.
func (s *spout) row(ctx context.Context) (r row, err error) {
	for len(s.page) == 0 {
		limit := ledger.Position{}
		if len(s.read.Above) > 0 {
			limit = s.read.Above[0].From
		}
		s.page, err = s.w.logs.page(ctx, s.read.Watermark, limit, 1000)
		switch n := len(s.page); {
		case err != nil:
			return r, err
		case n > 0:
			s.read.Watermark = s.page[n-1].place()
		case len(s.read.Above) == 0:
			return r, io.EOF
		default:
			s.read.Watermark, s.read.Above = s.read.Above[0].To, s.read.Above[1:]
			s.gaps++
		}
	}
	r, s.page = s.page[0], s.page[1:]
	r.gaps = s.gaps
	return r, nil
}

// Next implements flow.Producer.
func (s *spout) Next(ctx context.Context) (out flow.Item[*tuple], err error) {
	it, err := s.tuples.Next(ctx)
	if err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	span := ledger.Range{From: s.progress.Next(), To: it.Value[len(it.Value)-1].place()}
	return flow.Item[*tuple]{Value: &tuple{span, it.Value, time.Now()}, Cost: it.Cost},
		s.progress.Open(span)
}

// settled records that the rows of a tuple are stored. After every tenth tuple, it saves this
// progress to the file with the mark. So after a crash, at most nine tuples that were already
// stored are sent again, in addition to the in-flight ones.
func (s *spout) settled(it flow.Item[*tuple], _ flow.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Settle(it.Value.span)
	if s.done++; s.done%10 == 0 {
		watermark, above := s.progress.Progress()
		s.w.save(mark{watermark, above})
	}
}

// runNew runs the new algorithm: each bolt has a window, bolts acknowledge tuples, and a checkpoint
// has the times of the stored records.
func runNew(ctx context.Context, w *environment) (err error) {
	s := &spout{w: w}
	if s.read, err = w.load(); err != nil {
		return err
	}
	if s.progress, err = ledger.New(s.read.Watermark, s.read.Above); err != nil {
		return err
	}
	cut := func(last, next row) bool { return last.gaps != next.gaps }
	if s.tuples, err = flow.Pack(flow.PackOptions[row]{Rows: w.tuple, Cut: cut}, s.row); err != nil {
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
		Failed:  w.failed,
	})
	if err != nil {
		return err
	}
	go w.watch(ctx, sender)
	return sender.Run(ctx, s)
}
