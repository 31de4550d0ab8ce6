package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestSettledIsWrittenAtOnce checks that, once the route has caught up, a kill repeats only
// in-flight batches. Batches that settled since the last sync are not repeated. The checkpoint is
// not written for each batch of a burst. For a sink with a ledger, only the new partition is
// written at once, and its progress at the next checkpoint.sync.
func TestSettledIsWrittenAtOnce(t *testing.T) {
	const records, most = 1000, 100 // writes
	fault := &faulty{faults: &faults{calls: make(map[string]int)}}
	for name, test := range map[string]struct {
		sink func(s *fakeSink) config.Use
		want int64 // the position in the checkpoint before the first sync
	}{
		"durable when acked": {func(s *fakeSink) config.Use { return use(stream.SinkRole, s) }, records},
		"to be synced":       {func(s *fakeSink) config.Use { fault.sink = s; return fault.sinkUse() }, records},
		"ledgered": {func(s *fakeSink) config.Use {
			return use(stream.SinkRole, &ledgerSink{fakeSink: s})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, sink := vfstest.New(), &fakeSink{}
				sink.deliver = func(ctx context.Context, _ stream.Attempt) error {
					_ = retry.Sleep(ctx, time.Millisecond)
					return ctx.Err()
				}
				route := config.Route{Sink: test.sink(sink),
					Checkpoint: config.Checkpoint{Replay: 1 << 20, Sync: time.Hour}}
				e := fakeJob(t, m, Options{}, &fakeSource{lines: numbered(records), size: 1}, route)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				if !sink.hasAll(numbered(records)) {
					t.Fatal("not all has arrived")
				}
				var at int64
				for _, mark := range killed(t, m) {
					at = max(at, mark.Watermark.Num)
				}
				if at != test.want {
					t.Errorf("a kill would find the watermark %d, want %d", at, test.want)
				}
				writes := 0
				for _, c := range m.Calls() {
					if c.Op == vfstest.OpWrite && c.Path == "/state/"+checkpoint.Name {
						writes++
					}
				}
				t.Logf("%d writes", writes)
				if writes == 0 || writes > most {
					t.Errorf("the checkpoint was written %d times", writes)
				}
				stop()
				<-ended
			})
		})
	}
}
