package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/internal/testsize"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// refusingSink refuses every batch.
func refusingSink(workers int) *fakeSink {
	return &fakeSink{workers: workers, deliver: func(context.Context, stream.Attempt) error {
		return &flow.Rejected{Err: errors.New("400")}
	}}
}

type syncingSink struct{ *fakeSink }

// Sync implements stream.AppendSink.
func (syncingSink) Sync(context.Context) error { return nil }

// StartToken implements stream.AppendSink.
func (syncingSink) StartToken() string { return "" }

type encodingSink struct{ *fakeSink }

// Encodes implements stream.Encoder.
func (encodingSink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder.
func (encodingSink) Encode(dst []byte, b *stream.Batch) ([]byte, error) { return b.AppendRaw(dst), nil }

// TestEveryRecordDead checks that a finite run that dead-letters every record ends with an error.
// It tries every kind of sink and several numbers of records. Each case runs many times, because
// the order in which goroutines end varies.
func TestEveryRecordDead(t *testing.T) {
	kinds := map[string]func() any{
		"plain":       func() any { return refusingSink(1) },
		"two workers": func() any { return refusingSink(2) },
		"syncer":      func() any { return syncingSink{refusingSink(1)} },
		"encoder":     func() any { return encodingSink{refusingSink(1)} },
		"ledger":      func() any { return &ledgerSink{fakeSink: refusingSink(1)} },
	}
	for name, sink := range kinds {
		t.Run(name, func(t *testing.T) {
			for n := range testsize.Of(40, 200) {
				records := []int{1, 6, 101, 1500}[n%4]
				source := &fakeSource{lines: numbered(records), size: []int{5000, 1000, 7}[n%3]}
				e := fakeJob(t, vfstest.New(), Options{Once: true}, source,
					config.Route{Sink: use(stream.SinkRole, sink())})
				if err := e.Run(t.Context()); err == nil {
					t.Fatalf("run %d: %d records were refused and Run returned no error", n, records)
				}
				conserved(t, e.statusWithoutTree().Routes[0])
			}
		})
	}
}

// TestStopCauseIsKept checks that the result of a stopped route is the cause of the stop, even if
// all its goroutines end without an error.
func TestStopCauseIsKept(t *testing.T) {
	for n := range 200 {
		sink := &fakeSink{}
		source := &fakeSource{lines: numbered(10), size: 5}
		e := fakeJob(t, vfstest.New(), Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink)})
		r := e.pipes[0].slots[0].route
		cause := fmt.Errorf("cause %d", n)
		sink.deliver = func(context.Context, stream.Attempt) error {
			r.host.stop(cause)
			return nil
		}
		if err := e.Run(t.Context()); !errors.Is(err, cause) {
			t.Fatalf("Run = %v, want %v", err, cause)
		}
	}
}
