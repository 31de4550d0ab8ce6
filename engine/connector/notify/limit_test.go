package notify

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// TestHostLimit checks that the rate limit applies to each host separately and includes polls. No
// planned attempt is skipped, although the limit delays the last of 100 requests by over 3 minutes.
func TestHostLimit(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := asyncOptions()
		o.Limit = HostLimit{Rate: 0.5, Burst: 2}
		m := newMerchants(func(r *nethttp.Request, _ int) (int, string, time.Duration) {
			if r.Method == nethttp.MethodPost && r.URL.Path == "/m2-0" {
				return 202, "location /op", 0
			}
			return 200, `success`, 0
		})
		o.Async.Done = "true"
		f := newFixture(t, dir, o, m, false)
		defer f.stop()
		var lines []string
		for n := range 100 {
			lines = append(lines, fmt.Sprintf("m1 m1-%d", n))
			if n < 5 {
				lines = append(lines, fmt.Sprintf("m2 m2-%d", n))
			}
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for host, n := range map[string]int{"m1": 100, "m2": 6} {
			at := m.ofHost(host + ".shops.example")
			want := []time.Duration{0}
			for i := range n - 1 {
				want = append(want, time.Duration(i)*2*time.Second)
			}
			if !exactly(at, want) {
				t.Errorf("%s: requests at %v, want %v", host, at, want)
			}
		}
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 105}) {
			t.Errorf("counts %+v", got)
		}
		if n := f.host.Counted("attempts_skipped"); n != 0 {
			t.Errorf("%d attempts were passed over", n)
		}
	})
}

// TestHostLimitOnce checks that a finite run makes all first attempts, though the rate limit delays
// them.
func TestHostLimitOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Limit.Rate = 1
		f := newFixture(t, dir, o, newMerchants(
			func(*nethttp.Request, int) (int, string, time.Duration) { return 200, "success", 0 },
		), true)
		defer f.stop()
		var lines []string
		for n := range 10 {
			lines = append(lines, fmt.Sprintf("m1 order-%d", n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 10}) {
			t.Errorf("counts %+v when Deliver has returned", got)
		}
	})
}

// ofHost returns the times of all requests to a host, in order.
func (m *merchants) ofHost(host string) (at []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := map[string]int{}
	for _, r := range m.requests {
		order := r.URL.Path[1:]
		if n := taken[order]; r.URL.Host == host {
			at = append(at, m.attempts[order][n])
		}
		taken[order]++
	}
	slices.Sort(at)
	return at
}

// TestKeptUntilSynced checks a delivery that ends before the position of its record is in a
// checkpoint. The delivery must be kept until then, even for longer than parked.history, so that
// the record is recognized if it is read again.
func TestKeptUntilSynced(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Parked.History = leastHistory
		m := newMerchants(func(*nethttp.Request, int) (int, string, time.Duration) {
			return 200, "success", 0
		})
		f := newFixture(t, dir, o, m, false)
		defer f.stop()
		f.stuck.Store(true)
		for range 2 {
			if err := f.deliver("m1 order-1"); err != nil {
				t.Fatal(err)
			}
			f.next-- // the same record again
			time.Sleep(2 * time.Hour)
			synctest.Wait()
		}
		if at := m.of("order-1"); len(at) != 1 || f.host.Counted("deliveries_repeated") != 1 {
			t.Errorf("sent at %v, recognized %d times", at, f.host.Counted("deliveries_repeated"))
		}
		f.stuck.Store(false)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		_, err := f.Deliveries().Delivery(t.Context(), "order-1")
		if !errors.Is(err, stream.ErrNoDelivery) {
			t.Errorf("after its history and a checkpoint: %v", err)
		}
	})
}

// TestFullStore checks that records wait at the source if the store is full. They wait until enough
// ended deliveries have reached the minimum age of the history and are deleted.
func TestFullStore(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Parked.Bytes = 1 << 20
		f := newFixture(
			t,
			dir,
			o,
			newMerchants(func(*nethttp.Request, int) (int, string, time.Duration) {
				return 200, "success", 0
			}),
			false,
		)
		defer f.stop()
		full := 0
		for n := range 40 {
			line := fmt.Sprintf("m1 order-%d %0100000d", n, n)
			err := f.deliver(line)
			for errors.As(err, new(*stream.Throttled)) && full < 10_000 {
				full++
				f.next-- // the same batch again
				time.Sleep(time.Second)
				err = f.deliver(line)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 40}) || full == 0 ||
			f.host.Counted("park_full") != int64(full) {
			t.Errorf(
				"counts %+v, refused %d times as full, counted %d",
				got,
				full,
				f.host.Counted("park_full"),
			)
		}
	})
}
