package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// blockingSink is a sink that cannot be opened: its Open blocks until the context ends, as with an
// unresponsive database.
type blockingSink struct{ fakeSink }

// Open implements stream.Sink.
func (s *blockingSink) Open(ctx context.Context, _ stream.SinkOptions) error {
	<-ctx.Done()
	return fmt.Errorf("dial: %w", ctx.Err())
}

// TestDrainWhileOpening drains a route that is still opening, and routes that wait for it to open.
// All of them must end immediately, because nothing is in flight.
func TestDrainWhileOpening(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := fakeJob(t, vfstest.New(), Options{Once: once}, &fakeSource{lines: numbered(3), size: 1},
				config.Route{Sink: use(stream.SinkRole, &blockingSink{})},
				config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
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

// TestStallWhileOpening checks a finite run in which a receiver does not respond while its route
// opens. The run must end after Options.Stall, and the other routes must deliver.
func TestStallWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := &fakeSink{}
		e := fakeJob(t, vfstest.New(), Options{Once: true, Stall: 10 * time.Second},
			&fakeSource{lines: numbered(3), size: 1},
			config.Route{Sink: use(stream.SinkRole, &blockingSink{})},
			config.Route{Sink: use(stream.SinkRole, good)})
		start := time.Now()
		err := e.Run(t.Context())
		const want = "p/r0: it has not opened within 10s: sink fake: dial"
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "p/r1") {
			t.Errorf("Run = %v, want %q", err, want)
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second || len(good.got) != 3 {
			t.Errorf("it took %v, and the other route delivered %q", took, good.got)
		}
	})
}

// TestNotReadyWhileOpening checks that a route is not ready if it has been opening for a minute.
// The status has the time since it began to open.
func TestNotReadyWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{lines: numbered(3), size: 1},
			config.Route{Sink: use(stream.SinkRole, &blockingSink{})})
		ended := make(chan error)
		go func() { ended <- e.Run(t.Context()) }()
		ready := func() (bool, string) { // ignores the free disk space of the machine
			s := e.Status()
			s.Free = -1
			s.Judge()
			return s.Ready, strings.Join(s.Why, "\n")
		}
		time.Sleep(50 * time.Second)
		if ok, why := ready(); !ok {
			t.Errorf("not ready after 50 s: %s", why)
		}
		time.Sleep(15 * time.Second)
		if ok, why := ready(); ok || !strings.Contains(why, "p/r0: has not opened for 1m5s") {
			t.Errorf("ready %v after 65 s: %q", ok, why)
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
