package parked_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// TestRetryWhileInFlight checks an operator's retry during an attempt. The retry must survive the
// end of this attempt. The attempt that the operator has asked for must then be made, but only
// once.
func TestRetryWhileInFlight(t *testing.T) {
	at := path(t)
	s, other := open(t, at, 0), open(t, at, 0)
	add(t, s, rows(1, 2))
	asked := start.Add(time.Second)
	for _, e := range []parked.Event{parked.Refuse, parked.Skip} {
		d := find(t, s, "order-1")
		if err := other.Retry(t.Context(), d.ID, asked); err != nil {
			t.Fatal(err)
		}
		if ok, err := s.Retried(t.Context(), d); !ok || err != nil {
			t.Errorf("%v: the retry is not seen: %v", e, err)
		}
		if e == parked.Skip {
			to := step(t, d.Progress, payment, e, asked, 0)
			if _, err := s.Record(
				t.Context(), []parked.Change{{Delivery: d, To: to}},
			); err != nil {
				t.Fatal(err)
			}
		} else {
			record(t, s, d, e, asked)
		}
		d = find(t, s, "order-1")
		if d.State != parked.Waiting || !d.Forced || !d.Due.Equal(asked) {
			t.Errorf("after a retry during %v: %+v", e, d.Progress)
		}
		if ok, err := s.Retried(t.Context(), d); ok || err != nil {
			t.Errorf("the retry of a forced attempt counts as newer: %v", err)
		}
		record(t, s, d, parked.Refuse, asked)
		if d = find(t, s, "order-1"); d.Forced || !d.Due.After(asked) {
			t.Errorf("after the forced attempt: %+v", d.Progress)
		}
		asked = asked.Add(time.Second)
	}
	d := find(t, s, "order-1")
	if err := s.Retry(t.Context(), d.ID, asked); err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context(), d.ID, asked); err != nil {
		t.Fatal(err)
	}
	record(t, s, d, parked.Refuse, asked)
	if d = find(t, s, "order-1"); d.State != parked.Cancelled {
		t.Errorf("state %v after a retry and a cancellation", d.State)
	}
}
