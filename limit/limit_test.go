package limit_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/limit"
)

func newLimiter(t *testing.T, o limit.Options) *limit.Limiter {
	t.Helper()
	l, err := limit.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, l *limit.Limiter) limit.Permit {
	t.Helper()
	p, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reason returns the reason of err, or zero if err is no *limit.RefusedError.
func reason(err error) limit.Reason {
	if e, ok := errors.AsType[*limit.RefusedError](err); ok {
		return e.Reason
	}
	return 0
}

func TestFixedBoundsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.Fixed(3)
		var group sync.WaitGroup
		began := time.Now()
		for range 10 {
			group.Go(func() {
				p := acquire(t, l)
				if n := l.Status().InFlight; n > 3 {
					t.Errorf("%d calls in flight, want at most 3", n)
				}
				time.Sleep(time.Second)
				p.Done(limit.Success)
				p.Done(limit.Success) // does nothing
			})
		}
		group.Wait()
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("10 calls of 1s, 3 at a time, took %v, want 4s", d)
		}
		want := limit.Counts{Started: 10, Succeeded: 10}
		if s := l.Status(); s.Counts != want || s.InFlight != 0 || s.Waiting != 0 ||
			s.RoundTrip != time.Second {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestTryAcquire(t *testing.T) {
	l := limit.Fixed(1)
	p, ok := l.TryAcquire()
	if _, again := l.TryAcquire(); !ok || again {
		t.Errorf("TryAcquire returned %v, then %v; want true, false", ok, again)
	}
	p.Done(limit.Ignored)
	if _, ok := l.TryAcquire(); !ok {
		t.Error("TryAcquire returned false after Done")
	}
	limit.Permit{}.Done(limit.Success) // the zero value does nothing
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: 1})
		p := acquire(t, l)
		var group sync.WaitGroup
		group.Go(func() { acquire(t, l).Done(limit.Success) })
		synctest.Wait()
		if _, err := l.Acquire(t.Context()); reason(err) != limit.QueueFull {
			t.Errorf("the second waiter got %v, want a full queue", err)
		}
		p.Done(limit.Success)
		group.Wait()

		none := newLimiter(t, limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: -1})
		acquire(t, none)
		if _, err := none.Acquire(t.Context()); reason(err) != limit.QueueFull {
			t.Errorf("without a queue a waiter got %v, want a refusal", err)
		}
	})
}

func TestPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: 3})
		p := acquire(t, l)
		var order []string
		var group sync.WaitGroup
		wait := func(name string, priority limit.Priority) {
			group.Go(func() {
				p, err := l.AcquirePriority(t.Context(), priority)
				if err != nil {
					name += " " + err.(*limit.RefusedError).Reason.String()
				}
				order = append(order, name)
				p.Done(limit.Success)
			})
			synctest.Wait()
		}
		wait("low", limit.Low)
		wait("low 2", -100)
		wait("normal", limit.Normal)
		wait("high", limit.High) // displaces low 2
		wait("normal 2", limit.Normal)
		wait("low 3", limit.Low)
		p.Done(limit.Success)
		group.Wait()
		want := "low 2 displaced by a higher priority,low displaced by a higher priority,low 3 " +
			"queue is full," +
			"high,normal,normal 2"
		if got := strings.Join(order, ","); got != want {
			t.Errorf("order %s\nwant  %s", got, want)
		}
	})
}

// TestDeadlineThatCannotBeMet checks that a caller is refused if its deadline is too soon. One call
// uses the only slot, three callers wait for it, and each call takes a second. So the call of a
// fourth waiting caller would end after five seconds.
func TestDeadlineThatCannotBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.Fixed(1)
		call := func() {
			p := acquire(t, l)
			time.Sleep(time.Second)
			p.Done(limit.Success)
		}
		call()
		var group sync.WaitGroup
		for range 4 {
			group.Go(call)
		}
		synctest.Wait()
		began := time.Now()
		try := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			p, err := l.Acquire(ctx)
			p.Done(limit.Ignored)
			return err
		}
		err := try(4900 * time.Millisecond)
		if reason(err) != limit.DeadlineSoon || time.Since(began) != 0 {
			t.Errorf("a deadline too soon: %v after %v, want a refusal at once", err,
				time.Since(began))
		}
		e := err.(*limit.RefusedError)
		if e.RetryAfter() != 4*time.Second || !strings.Contains(e.Error(), "deadline is too soon") {
			t.Errorf("the refusal says %q, retry after %v, want 4s", e, e.RetryAfter())
		}
		if err := try(5100 * time.Millisecond); err != nil || time.Since(began) != 4*time.Second {
			t.Errorf("a deadline that can be met: %v after %v, want a permit after 4s", err,
				time.Since(began))
		}
		group.Wait()
	})
}

func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Options{Window: window.Fixed{Size: 1}, MaxWait: 3 * time.Second})
		p := acquire(t, l)
		began := time.Now()
		if _, err := l.Acquire(t.Context()); reason(err) != limit.QueueTooSlow ||
			time.Since(began) != 3*time.Second {
			t.Errorf("behind a call that hangs: %v after %v, want a refusal after 3s", err,
				time.Since(began))
		}
		time.Sleep(time.Second)
		p.Done(limit.Success) // took 4s
		acquire(t, l)
		began = time.Now()
		if _, err := l.Acquire(t.Context()); reason(err) != limit.QueueTooSlow ||
			time.Since(began) != 0 {
			t.Errorf("behind a call that takes 4s: %v after %v, want a refusal at once", err,
				time.Since(began))
		}
	})
}

func TestWaiterThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.Fixed(1)
		p := acquire(t, l)
		cause := errors.New("no longer needed")
		ctx, cancel := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := l.Acquire(ctx); err != cause {
				t.Errorf("a waiter whose context ended got %v, want its cause", err)
			}
		})
		synctest.Wait()
		cancel(cause)
		group.Wait()
		if _, err := l.Acquire(ctx); err != cause {
			t.Errorf("a context that had ended: %v, want its cause", err)
		}
		group.Go(func() { acquire(t, l).Done(limit.Success) })
		synctest.Wait()
		p.Done(limit.Success)
		group.Wait()
		if s := l.Status(); s.InFlight != 0 || s.Waiting != 0 || s.Counts.Refused != 0 {
			t.Errorf("status is %+v, want nothing in flight, waiting or refused", s)
		}
	})
}

// TestGivenUpWhileGranted checks that no slot is lost if waiters are canceled at the moment at
// which slots are freed.
func TestGivenUpWhileGranted(t *testing.T) {
	l := limit.Fixed(2)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithCancel(context.Background())
				var inner sync.WaitGroup
				inner.Go(cancel)
				if p, err := l.Acquire(ctx); err == nil {
					p.Done(limit.Success)
				}
				inner.Wait()
			}
		})
	}
	group.Wait()
	if s := l.Status(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("%d in flight and %d waiting in the end, want none", s.InFlight, s.Waiting)
	}
}

func TestLimitFollowsOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, limit.Options{Window: window.Queue{Initial: 40}})
		end := func(o limit.Outcome) int {
			var permits []limit.Permit
			for p, ok := l.TryAcquire(); ok; p, ok = l.TryAcquire() {
				permits = append(permits, p)
			}
			time.Sleep(time.Second)
			for _, p := range permits {
				p.Done(o)
			}
			return l.Status().Limit
		}
		if n := end(limit.Ignored); n != 40 {
			t.Errorf("after calls that tell nothing the limit is %d, want 40", n)
		}
		if n := end(limit.Overloaded); n != 20 {
			t.Errorf("after 40 refusals of one round trip the limit is %d, want 20", n)
		}
		if n := end(limit.TimedOut); n != 10 {
			t.Errorf("after 20 timeouts of one round trip the limit is %d, want 10", n)
		}
		for range 40 {
			end(limit.Success)
		}
		if n := l.Status().Limit; n < 20 {
			t.Errorf("at a server that never queues the limit is %d, want it to grow", n)
		}
		want := limit.Counts{Overloaded: 40, TimedOut: 20, Ignored: 40}
		got := l.Status().Counts
		got.Started, got.Succeeded = 0, 0
		if got != want {
			t.Errorf("counts are %+v, want %+v", got, want)
		}
	})
}

func TestOutcomeOf(t *testing.T) {
	for _, v := range []struct {
		err  error
		want limit.Outcome
	}{
		{nil, limit.Success},
		{context.DeadlineExceeded, limit.TimedOut},
		{&net.OpError{Op: "read", Err: context.DeadlineExceeded}, limit.TimedOut},
		{context.Canceled, limit.Ignored},
		{errors.New("not found"), limit.Ignored},
		{hinted(time.Second), limit.Overloaded},
		{hinted(0), limit.Ignored},
		{&limit.RefusedError{Reason: limit.QueueFull, Wait: time.Second}, limit.Ignored},
	} {
		if got := limit.OutcomeOf(v.err); got != v.want {
			t.Errorf("OutcomeOf(%v) = %v, want %v", v.err, got, v.want)
		}
	}
}

type hinted time.Duration

func (hinted) Error() string               { return "busy" }
func (h hinted) RetryAfter() time.Duration { return time.Duration(h) }

func TestOptionsThatAreInvalid(t *testing.T) {
	for _, v := range []struct {
		options limit.Options
		want    string
	}{
		{limit.Options{MaxWait: -1}, "MaxWait"},
		{limit.Options{Window: window.Fixed{Size: -1}}, "fixed window"},
		{limit.Options{Window: window.Credit{}}, "advertises"},
	} {
		if _, err := limit.New(v.options); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("New(%+v) returned %v, want an error with %q", v.options, err, v.want)
		}
	}
}

func TestNamesOfValues(t *testing.T) {
	for got, want := range map[string]string{
		limit.TimedOut.String():                                "timed out",
		limit.Outcome(9).String():                              "Outcome(9)",
		limit.Displaced.String():                               "displaced by a higher priority",
		limit.Reason(0).String():                               "Reason(0)",
		(&limit.RefusedError{Reason: limit.QueueFull}).Error(): "concurrency limit: queue is full",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNoAllocationsWithoutWaiting(t *testing.T) {
	for _, a := range []window.Algorithm{window.Fixed{}, window.Queue{}, window.AIMD{}} {
		l := newLimiter(t, limit.Options{Window: a})
		ctx := t.Context()
		n := testing.AllocsPerRun(5000, func() {
			p, err := l.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			p.Done(limit.Success)
		})
		if n != 0 {
			t.Errorf("%s: Acquire and Done allocate %v times, want 0", a.Name(), n)
		}
	}
}
