package control

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// TestWaitsWithoutToken checks that failed items begin their waits at once if the budget has no
// token for another attempt. Otherwise each would keep its data in memory until it got a token, and
// a restart would forget its attempts.
func TestWaitsWithoutToken(t *testing.T) {
	const items = 4
	m, err := New(Config{
		Timeout: -1, Retry: backoff.Fixed(time.Minute), Defer: true,
		Budget: Budget{Burst: 1, PerSecond: 0.1}, Breaker: Breaker{Failures: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Step(Event{Kind: LaneUp, Lane: 0}, nil)
	m.Step(Event{Kind: LaneUp, Lane: 1}, nil)
	var sent []Command
	for seq := range items {
		for _, c := range m.Step(Event{Kind: Offer, Seq: uint64(seq + 1), Cost: 1}, nil) {
			if c.Kind == Start {
				sent = append(sent, c)
			}
		}
	}
	waits := 0
	for len(sent) > 0 {
		c := sent[0]
		sent = sent[1:]
		e := Event{Now: time.Millisecond, Kind: Answer, Lane: c.Lane, ID: c.ID,
			Seq: c.Seq, Outcome: Retryable}
		for _, c := range m.Step(e, nil) {
			switch c.Kind {
			case Start:
				sent = append(sent, c)
			case Wait:
				waits++
			}
		}
	}
	if waits != items {
		t.Errorf("%d of %d items wait a minute after their attempts failed", waits, items)
	}
}
