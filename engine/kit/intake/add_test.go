package intake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// TestAddBeyondLimit checks that Add accepts more records than fit into the intake. They arrive in
// order, and the intake stays within its limit. A single record that exceeds the limit waits until
// the intake is empty.
func TestAddBeyondLimit(t *testing.T) {
	const most = 1000
	var long, odd []string
	for i := range 100 {
		long = append(long, fmt.Sprintf("%03d %s", i, strings.Repeat("x", 40)))
		odd = append(odd, fmt.Sprintf("%03d\n%s\r", i, strings.Repeat("x", 40)))
	}
	single := []string{"before", strings.Repeat("x", 5*most), "after"}
	added := func(texts []string) (r intake.Records) {
		for _, text := range texts {
			r.Add([]byte(text))
		}
		return r
	}
	for name, c := range map[string]struct {
		records intake.Records
		want    []string
		within  int64
	}{
		"lines":      {lines(long...), long, most},
		"records":    {added(long), long, most},
		"odd":        {added(odd), odd, most},
		"one record": {added(single), single, 6 * most},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := newIntake(t, intake.Options{MaxBytes: most}, quiet())
				r := open(t, in, streamtest.Route, nil)
				ended := make(chan error, 1)
				go func() { ended <- in.Add(t.Context(), c.records) }()
				var got []string
				for len(got) < len(c.want) {
					synctest.Wait()
					if held := in.Held(); held > c.within {
						t.Fatalf("%d bytes are held, at most %d", held, c.within)
					}
					select {
					case err := <-ended:
						if err != nil {
							t.Fatal(err)
						}
					default:
					}
					texts, b := r.read()
					got = append(got, texts...)
					r.settle(b)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
				synctest.Wait()
				if held := in.Held(); held != 0 {
					t.Errorf("%d bytes are held after everything is settled", held)
				}
			})
		})
	}
}

// countingHost counts the calls of Routes.
type countingHost struct {
	*streamtest.Quiet
	calls atomic.Int64
}

// Routes implements stream.SourceHost.
func (h *countingHost) Routes() []string {
	h.calls.Add(1)
	return h.Quiet.Routes()
}

// TestWaitersCheckTogether checks that many senders that wait for routes cause no more work than a
// single one. Only one sender at a time may check whether a route has left the pipeline, because
// this check looks at all submissions.
func TestWaitersCheckTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &countingHost{Quiet: quiet()}
		in := newIntake(t, intake.Options{}, h)
		r := open(t, in, streamtest.Route, nil)
		const senders, seconds = 200, 10
		waits := make(chan error, senders)
		for i := range senders {
			s := submit(t, in, lines(fmt.Sprint(i)))
			go func() { waits <- s.Wait(t.Context()) }()
			time.Sleep(time.Millisecond) // so that the senders check at different times
		}
		before := h.calls.Load()
		time.Sleep(seconds * time.Second)
		if calls := h.calls.Load() - before; calls > 2*seconds {
			t.Errorf("%d checks of the routes in %d s", calls, seconds)
		}
		for read := 0; read < senders; {
			texts, b := r.read()
			read += len(texts)
			r.settle(b)
		}
		for range senders {
			if err := <-waits; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLostAtStop checks that all records that are not delivered when the source stops are counted
// as lost: records in the intake, records that wait for room, and records that are submitted later.
func TestLostAtStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return true })
		in := newIntake(t, intake.Options{MaxBytes: 1000}, h)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		records := make([]string, 100)
		for i := range records {
			records[i] = strings.Repeat("x", 40)
		}
		go func() { ended <- in.Add(ctx, lines(records...)) }()
		synctest.Wait()
		if in.Held() == 0 {
			t.Fatal("nothing was submitted")
		}
		cancel()
		h.Stop()
		if err := <-ended; err == nil {
			t.Error("Add submitted everything to a full intake")
		}
		if lost := h.Counted("records_lost"); lost != 100 {
			t.Errorf("%d records are counted as lost, want 100", lost)
		}
		if err := in.Add(t.Context(), lines("late")); err != nil {
			t.Error(err)
		}
		if lost := h.Counted("records_lost"); lost != 101 {
			t.Errorf("%d records are counted as lost, want 101", lost)
		}
	})
}

// TestExpandIsBounded checks that Expand refuses more bytes of records than Submit accepts, so that
// a sender of too much data gets the error from Expand already.
func TestExpandIsBounded(t *testing.T) {
	in := newIntake(t, intake.Options{}, quiet())
	const body = 128 << 20
	r, err := in.Reserve(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	err = r.Expand(t.Context(), body, intake.MaxSubmission+1)
	if !errors.Is(err, intake.ErrTooLarge) {
		t.Errorf("Expand = %v, want ErrTooLarge", err)
	}
	if err := r.Expand(t.Context(), body, intake.MaxSubmission); err != nil {
		t.Error(err)
	}
}
