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

// TestEmptyLedgerWhileEverythingWaits checks a sink with a ledger that fails from the first batch on.
// Everything waits for a retry, and the ledger stays empty. The next run must resume.
func TestEmptyLedgerWhileEverythingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		reread := &rangeSource{fakeSource: &fakeSource{lines: numbered(9), size: 3}}
		route := retrying(time.Minute)
		route.Checkpoint = config.DefaultRoute("r0", "/state").Checkpoint
		down := true
		inner := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			if down {
				return errors.New("500")
			}
			return nil
		}}
		sink := &unreachableLedger{ledgerSink: ledgerSink{fakeSink: inner}, down: &down}
		route.Sink = use(stream.SinkRole, sink)
		run := func(d time.Duration) {
			e := jobOf(t, m, Options{}, use(stream.SourceRole, reread), route)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(d)
			synctest.Wait()
			stop()
			<-ended
		}
		run(20 * time.Second)
		down = false
		run(10 * time.Minute)
		if !inner.hasAll(numbered(9)) {
			t.Errorf("delivered %q, want each line once", inner.got)
		}
	})
}

// unreachableLedger is a sink with a ledger in a database that does not answer while down is set.
type unreachableLedger struct {
	ledgerSink
	down *bool
}

// Compact implements stream.TransactionalSink.
func (s *unreachableLedger) Compact(_ context.Context, marks []stream.Mark) error {
	if *s.down {
		return errors.New("connection refused")
	}
	s.holds = marks
	return nil
}
