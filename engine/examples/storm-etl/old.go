package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
)

// runOld runs the old algorithm. Tuples are dispatched by a hash and never acknowledged. After a
// crash, it is unknown which tuples were stored, so the day starts again.
func runOld(ctx context.Context, w *environment) error {
	var all sync.WaitGroup
	queues := make([]chan *tuple, len(w.bolts))
	for i, b := range w.bolts {
		queues[i] = make(chan *tuple, w.rows/w.tuple+1) // like Storm's queues, without bound
		all.Go(func() {
			for t := range queues[i] {
				_, _ = b.Deliver(ctx, flow.Attempt[*tuple]{Value: t}) // ignore the outcome
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

func hash(id int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, id)
	return h.Sum64()
}
