package pipeline

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// deafSink opens when its context ends, as one whose database does not answer.
type deafSink struct{ fakeSink }

// Open implements penstock.Sink.
func (s *deafSink) Open(ctx context.Context, _ penstock.SinkOptions) error {
	<-ctx.Done()
	return fmt.Errorf("dial: %w", ctx.Err())
}

// TestDrainWhileOpening: a route that is still opening has nothing in flight, and so a drain ends it at once, and the routes that wait
// for it.
func TestDrainWhileOpening(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := fakeJob(t, vfstest.New(), Options{Once: once}, &fakeSource{lines: numbered(3), size: 1},
				config.Route{Sink: use(penstock.SinkRole, &deafSink{})}, config.Route{Sink: use(penstock.SinkRole, &fakeSink{})})
			ended := make(chan error)
			go func() { ended <- e.Run(t.Context()) }()
			time.Sleep(time.Second)
			start := time.Now()
			e.Drain()
			if err := <-ended; err != nil || time.Since(start) > time.Second {
				t.Errorf("once %v: Run = %v, %v after Drain", once, err, time.Since(start))
			}
		})
	}
}
