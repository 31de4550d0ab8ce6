package flow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/checkpoint"
	"github.com/penstock-io/penstock/flow/ledger"
)

// row is a row of a table that is read by time. The time is its position.
type row struct{ time int64 }

// after returns the rows after a time, as SELECT ... WHERE time > ? ORDER BY time would. The table
// has 50,000 rows, one every two seconds.
func after(time int64) func(context.Context) (row, error) {
	return func(context.Context) (row, error) {
		if time += 2; time > 100_000 {
			return row{}, io.EOF
		}
		return row{time}, nil
	}
}

const replay = 3000 // maximum number of rows that a crash repeats

// deliverTable runs the program once: it delivers to twelve workers, starting at the progress in
// the file.
func deliverTable(file string, worker flow.WorkerFunc[[]row],
	settled func(flow.Item[[]row], flow.Settlement)) error {
	defer func() { power, _ := recover().(*flow.PanicError); fmt.Println("crash:", power != nil) }()
	mark, err := checkpoint.Open(file)
	if err != nil {
		return err
	}
	defer mark.Close()
	var lanes []flow.Lane[[]row]
	for i := range 12 {
		lanes = append(lanes, flow.Lane[[]row]{Name: fmt.Sprint("worker ", i), Worker: worker})
	}
	book, err := flow.OpenBook(context.Background(), flow.BookOptions[row]{
		Checkpoint: mark,
		At:         func(r row) ledger.Position { return ledger.Position{Num: r.time} },
		Pack:       flow.PackOptions[row]{Rows: 100},
		Replay:     replay,
		Sender:     flow.Options[[]row]{Lanes: lanes, Settled: settled},
	})
	if err != nil {
		return err
	}
	watermark, _ := book.Progress()
	fmt.Println("begins at the first row:", watermark.Num == 0)
	return book.Run(context.Background(), after(watermark.Num))
}

// ExampleBook delivers a table by time to twelve workers, crashes after 300 of 500 batches, and
// resumes from the progress in its file.
func ExampleBook() {
	dir, err := os.MkdirTemp("", "book")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	var mu sync.Mutex // workers run side by side
	attempts, settled, came, seen := 0, 0, 0, map[int64]bool{}
	worker := func(_ context.Context, a flow.Attempt[[]row]) (flow.Report, error) {
		mu.Lock()
		defer mu.Unlock()
		if attempts++; attempts%50 == 0 {
			return flow.Report{}, errors.New("connection reset") // another worker gets the batch
		}
		for _, r := range a.Value {
			came, seen[r.time] = came+1, true
		}
		return flow.Report{}, nil
	}
	crash := func(flow.Item[[]row], flow.Settlement) {
		if settled++; settled == 300 {
			panic("power cut") // nothing more is saved
		}
	}
	for range 2 {
		fmt.Println(deliverTable(filepath.Join(dir, "mark"), worker, crash))
	}
	fmt.Println(len(seen), "rows came, and came again as often as may be:",
		came-len(seen) <= replay)
	// Output:
	// begins at the first row: true
	// crash: true
	// <nil>
	// begins at the first row: false
	// crash: false
	// <nil>
	// 50000 rows came, and came again as often as may be: true
}
