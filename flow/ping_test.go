package flow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// answered reports whether the channel of a ping is closed.
func answered(ping <-chan struct{}) bool {
	select {
	case <-ping:
		return true
	default:
		return false
	}
}

// TestPing checks that a ping is answered during and after Run, also while workers hang. It must
// not be answered before Run, nor while a callback does not return.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		o := d.options(d.lane("a", hangs[int]()), d.lane("b", takes[int](time.Second)))
		blocked := make(chan struct{})
		settled := o.Settled
		o.Settled = func(it Item[int], s Settlement) {
			<-blocked
			settled(it, s)
		}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		early := s.Ping()
		if synctest.Wait(); answered(early) {
			t.Error("a ping was answered before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx, these(values(1, 2)...)) }()
		if synctest.Wait(); !answered(early) || !answered(wait(s.Ping())) {
			t.Error("a ping was not answered while the workers deliver")
		}
		time.Sleep(2 * time.Second) // an item is delivered, and its callback does not return
		stuck := s.Ping()
		if synctest.Wait(); answered(stuck) || answered(s.Ping()) {
			t.Error("a ping was answered while a callback blocks the loop")
		}
		close(blocked)
		if synctest.Wait(); !answered(stuck) {
			t.Error("a ping was not answered after the callback returned")
		}
		cancel()
		<-ended
		if first := answered(s.Ping()); !first || !answered(s.Ping()) {
			t.Error("a ping was not answered after Run")
		}
	})
}

// wait waits until no goroutine of the bubble can make progress, and returns ping.
func wait(ping <-chan struct{}) <-chan struct{} {
	synctest.Wait()
	return ping
}

// TestPingAfterPanic checks Ping after Run has panicked.
func TestPingAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		o := d.options(d.lane("a", takes[int](0)))
		o.Settled = func(Item[int], Settlement) { panic("callback") }
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		early := s.Ping()
		func() {
			defer func() { _ = recover() }()
			_ = s.Run(t.Context(), these(values(1)...))
			t.Error("Run did not panic")
		}()
		if !answered(early) || !answered(s.Ping()) {
			t.Error("a ping was not answered after Run panicked")
		}
	})
}
