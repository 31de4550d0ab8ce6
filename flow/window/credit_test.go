package window

import (
	"testing"
	"time"
)

// TestCreditUnits checks the unit of an advertisement. Each batch has 20 records. If a receiver
// accepts 40 batches in flight, the window is 40 batches. If it accepts 40 records, the window is
// 2 batches.
func TestCreditUnits(t *testing.T) {
	for _, c := range []struct {
		batches bool
		counts  uint64 // counted by the receiver for each batch
		want    float64
	}{{true, 1, 40}, {false, 20, 2}} {
		w := Credit{}.New()
		for i := range uint64(2000) {
			taken := (i + 1) * c.counts
			w.OnSample(Sample{
				Now: time.Duration(i) * time.Millisecond, RoundTrip: 40 * time.Millisecond,
				Cost: 20, Mean: 20,
				InFlightAtSend: 20, Done: 20, Limited: true, Epoch: w.Epoch(),
				Advert: Advert{Valid: true, Batches: c.batches, Credit: taken + 40, Taken: taken},
			})
		}
		if got := w.(*credit).Granted(); got != c.want {
			t.Errorf("batches %v: the advertised window is %v batches, want %v", c.batches,
				got, c.want)
		}
	}
}

// TestCreditUnitChanges checks the window of a receiver that first advertises records, and later
// batches.
func TestCreditUnitChanges(t *testing.T) {
	w := Credit{}.New().(*credit)
	for i := range uint64(100) {
		a := Advert{Valid: true, Credit: 1000 + 20*i, Taken: 20 * (i + 1)}
		if i >= 50 {
			a = Advert{Valid: true, Batches: true, Credit: i - 49 + 30, Taken: i - 49}
		}
		w.OnSample(Sample{Now: time.Duration(i) * time.Millisecond, RoundTrip: time.Millisecond,
			Cost: 20, Mean: 20, Advert: a})
	}
	if got := w.Granted(); got != 30 {
		t.Errorf("the advertised window is %v batches, want 30", got)
	}
}

// TestCreditLimitsOwnWindow checks that the window's own estimate does not grow while the credit is
// the limit. If a worker that advertised 5 batches suddenly advertises a million, the limit is
// twice the own estimate, and so must stay small.
func TestCreditLimitsOwnWindow(t *testing.T) {
	w := Credit{}.New()
	sample := func(i, credit uint64) {
		w.OnSample(Sample{
			Now: time.Duration(i) * 8 * time.Millisecond, RoundTrip: 40 * time.Millisecond,
			Cost: 1, Mean: 1, InFlightAtSend: 5, Done: 5, Limited: true, Epoch: w.Epoch(),
			Advert: Advert{Valid: true, Credit: i + credit, Taken: i},
		})
	}
	for i := range uint64(1000) {
		sample(i+1, 5)
	}
	if got := w.Limit(); got < 4 || got > 5 {
		t.Errorf("with 5 batches advertised, the limit is %v", got)
	}
	sample(1001, 1e6)
	if got := w.Limit(); got > 15 {
		t.Errorf("after a false advertisement, the limit is %v, want at most 15", got)
	}
}
