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
		if got := w.(*credit).advertised(); got != c.want {
			t.Errorf("batches %v: the advertised window is %v batches, want %v", c.batches,
				got, c.want)
		}
	}
}

// TestCreditUnitChanges checks that the window follows a receiver that changes to counting batches.
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
	if got := w.advertised(); got != 30 {
		t.Errorf("the advertised window is %v batches, want 30", got)
	}
}
