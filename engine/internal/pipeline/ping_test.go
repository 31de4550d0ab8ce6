package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hangingObserver blocks each measurement, and with it the event loop, until it is closed.
type hangingObserver chan struct{}

func (o hangingObserver) Observe(float64) { <-o }

// TestPing pings an engine with hanging workers, and one with a hanging event loop.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 1000, "p/a=1", "p/b=1", "q/a=1")
		ping := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return a.e.Ping(ctx)
		}
		if err := ping(); err != nil {
			t.Errorf("Ping = %v", err)
		}
		a.pace.Store(int64(20 * time.Second))
		time.Sleep(time.Second)
		hanging := make(hangingObserver)
		s := a.e.find("p", "b")
		synctest.Wait()
		s.route.observed.latency = hanging // published by the next Ping
		if err := ping(); err != nil {
			t.Errorf("Ping while workers hang = %v", err)
		}
		time.Sleep(time.Minute)
		if err := ping(); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "event loop of p/b: ") {
			t.Errorf("Ping while an event loop hangs = %v", err)
		}
		close(hanging)
		if err := ping(); err != nil {
			t.Errorf("Ping after that = %v", err)
		}
		a.pace.Store(0)
		a.stop()
		if err := ping(); err != nil {
			t.Errorf("Ping after the end = %v", err)
		}
	})
}
