package ledger_test

import (
	"fmt"

	"github.com/penstock-io/penstock/flow/ledger"
)

func upTo(from, to int64) ledger.Range {
	return ledger.Range{From: ledger.Position{Num: from}, To: ledger.Position{Num: to}}
}

// Four batches of a file are sent to several workers and settle in another order. A checkpoint
// stores the mark. After a crash, the program creates a ledger from the mark and sends only the
// missing ranges again.
func ExampleLedger() {
	book, err := ledger.New(ledger.Position{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	batches := []ledger.Range{upTo(0, 100), upTo(100, 200), upTo(200, 300), upTo(300, 400)}
	for _, b := range batches { // in read order
		if err := book.Open(b); err != nil {
			fmt.Println(err)
		}
	}
	for _, i := range []int{0, 2, 3} {
		book.Settle(batches[i])
		watermark, above := book.Progress()
		fmt.Println("settled", batches[i], "mark", watermark, above)
	}

	watermark, above := book.Progress()
	again, err := ledger.New(watermark, above) // after a crash
	if err != nil {
		fmt.Println(err)
		return
	}
	end, _ := again.Limit()
	fmt.Println("to be sent again: from", again.Next(), "to", end)
	hole := ledger.Range{From: again.Next(), To: end}
	fmt.Println(again.Open(hole), again.Settle(hole), again.Watermark())
	// Output:
	// settled (0, 100] mark 100 []
	// settled (200, 300] mark 100 [(200, 300]]
	// settled (300, 400] mark 100 [(200, 400]]
	// to be sent again: from 100 to 200
	// <nil> true 400
}
