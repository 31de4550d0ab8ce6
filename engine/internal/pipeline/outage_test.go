package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestNoWorkerCanDeliver checks that a drain and a finite run end soon, with the reason, if every
// worker is misconfigured. If every attempt at every worker fails, a drain also ends soon, and a
// finite run ends after Options.Stall. A drain also ends soon if the receiver has asked for a pause
// beyond the end of the drain. A drain does not end early if the workers are only slow.
func TestNoWorkerCanDeliver(t *testing.T) {
	misconfigured := func(context.Context, stream.Attempt) error {
		return &flow.Misconfigured{Err: errors.New("401 token")}
	}
	refused := func(context.Context, stream.Attempt) error { return errors.New("connection refused") }
	throttled := func(after time.Duration) func(context.Context, stream.Attempt) error {
		var ends time.Time // of the receiver's pause
		return func(context.Context, stream.Attempt) error {
			if ends.IsZero() {
				ends = time.Now().Add(after)
			} else if time.Now().After(ends) {
				return nil
			}
			return &flow.Throttled{After: time.Until(ends), Err: errors.New("429 quota")}
		}
	}
	slow := func(ctx context.Context, _ stream.Attempt) error {
		if retry.Sleep(ctx, 20*time.Second) != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		once    bool
		workers int
		deliver func(context.Context, stream.Attempt) error
		within  time.Duration // of the drain, or of the start of a finite run
		want    string        // of the error; "": none
	}{
		{"drain, misconfigured", false, 1, misconfigured, 5 * time.Second, "401 token"},
		{"drain, four misconfigured", false, 4, misconfigured, 5 * time.Second, "401 token"},
		{"drain, refused", false, 1, refused, 5 * time.Second, "connection refused"},
		{"drain, four refused", false, 4, refused, 5 * time.Second, "connection refused"},
		{"drain, slow", false, 2, slow, 25 * time.Second, ""},
		{"drain, paused for an hour", false, 1, throttled(time.Hour), 2 * time.Second, "429 quota"},
		{"drain, paused for 30s", false, 1, throttled(30 * time.Second), 25 * time.Second, ""},
		{"once, misconfigured", true, 1, misconfigured, 10 * time.Second, "401 token"},
		{"once, four misconfigured", true, 4, misconfigured, 10 * time.Second, "401 token"},
		{"once, refused", true, 2, refused, 6 * time.Minute, "connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &fakeSink{workers: c.workers, deliver: c.deliver}
				source := &fakeSource{lines: numbered(10), size: 5}
				e := fakeJob(t, vfstest.New(), Options{Once: c.once}, source,
					config.Route{Sink: use(stream.SinkRole, sink)})
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- e.Run(t.Context()) }()
				if !c.once {
					time.Sleep(10 * time.Second)
					began = time.Now()
					e.Drain()
				}
				err := <-ended
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v, want at most %v", took, c.within)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("Run = %v, want %q", err, c.want)
				}
			})
		})
	}
}

// TestWorkerComesBack checks that a finite run delivers everything although its only worker is
// briefly misconfigured.
func TestWorkerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sink := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			if time.Since(began) < 2*time.Second {
				return &flow.Misconfigured{Err: errors.New("401 token")}
			}
			return nil
		}}
		source := &fakeSource{lines: numbered(10), size: 5}
		e := fakeJob(t, vfstest.New(), Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink)})
		if err := e.Run(t.Context()); err != nil || len(sink.got) != 10 {
			t.Errorf("Run = %v, %d records arrived", err, len(sink.got))
		}
	})
}
