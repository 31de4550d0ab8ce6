package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// failingLedger is a sink with a ledger. Its method Compact merges the ledger's rows of settled
// ranges, up to a watermark. The first call fails. failingLedger records the watermark of the last
// successful call.
type failingLedger struct {
	ledgerSink
	failed bool
	folded int64
}

// Compact implements stream.TransactionalSink.
func (s *failingLedger) Compact(_ context.Context, marks []stream.Mark) error {
	if !s.failed {
		s.failed = true
		return errors.New("the connection is gone")
	}
	for _, m := range marks {
		s.folded = m.Watermark.Num
	}
	return nil
}

// TestFoldingIsTriedAgain checks that, after a failure of Compact, the next save calls Compact
// again, even if nothing more has settled.
func TestFoldingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20
		sink := &failingLedger{ledgerSink: ledgerSink{fakeSink: &fakeSink{}}}
		source := &notedSource{fakeSource: &fakeSource{lines: numbered(records), size: 5}}
		route := config.Route{Sink: use(stream.SinkRole, sink)}
		route.Checkpoint.Replay, route.Checkpoint.Sync = 1<<20, time.Second
		e := jobOf(t, vfstest.New(), Options{}, source.use(), route)
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !sink.failed || sink.folded != records {
			t.Errorf("failed %v, folded up to %d, want %d", sink.failed, sink.folded, records)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
