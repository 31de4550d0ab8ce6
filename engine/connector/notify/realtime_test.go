package notify

import (
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// TestScheduleInRealTime checks the attempts at a real server that refuses everything. None may be
// early, or a second late, and the dead letter must have 16 entries. The waits of the schedule are
// divided by 36,000, but are at least 100 ms. With PENSTOCK_NOTIFY_REAL=DURATION, the test uses the
// real schedule and watches it for DURATION, such as 4m5s for five attempts.
func TestScheduleInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector makes attempts late")
	}
	t.Parallel()
	var mu sync.Mutex
	var at []time.Duration
	begun := time.Now()
	server := httptest.NewServer(nethttp.HandlerFunc(
		func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(begun))
			_, _ = w.Write([]byte("fail"))
		},
	))
	defer server.Close()
	o := overNetwork(t, server.URL)
	o.Async = Async{}
	divided, least, observed := 36_000, 100*time.Millisecond, time.Duration(0)
	if text := os.Getenv("PENSTOCK_NOTIFY_REAL"); text != "" {
		var err error
		if observed, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		divided, least = 1, time.Millisecond
	}
	for i := range o.Schedule.List {
		wait := o.Schedule.List[i] / time.Duration(divided)
		o.Schedule.List[i] = max(least, wait.Truncate(time.Millisecond))
	}
	f := newFixture(t, t.TempDir(), o, nil, false)
	defer f.stop()
	parkedAt := time.Since(begun)
	if err := f.deliver("order-1"); err != nil {
		t.Fatal(err)
	}
	if observed > 0 {
		<-time.After(observed)
	} else {
		awaitDelivery(t, f.Deliveries(), "order-1", func(d stream.Delivery) bool {
			return d.State == "dead"
		})
		if len(f.letters) != 1 || len(f.letters[0].History) != 16 {
			t.Errorf("dead letters %+v", f.letters)
		}
	}
	want := []time.Duration{0}
	for _, wait := range o.Schedule.List {
		if next := want[len(want)-1] + wait; observed == 0 || next < observed {
			want = append(want, next)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	const stored = time.Millisecond // precision of due times
	since := make([]time.Duration, len(at))
	for i := range at {
		since[i] = at[i] - parkedAt + stored
	}
	t.Logf("attempts at %v, planned at %v", since, want)
	if !exactly(since, want) {
		t.Errorf("attempts at %v, want %v", since, want)
	}
}
