package notify

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

var planned = []time.Duration{
	0,
	15 * time.Second,
	30 * time.Second,
	time.Minute,
	4 * time.Minute,
	14 * time.Minute,
	34 * time.Minute,
	64 * time.Minute,
	94 * time.Minute,
	124 * time.Minute,
	184 * time.Minute,
	364 * time.Minute,
	544 * time.Minute,
	724 * time.Minute,
	1084 * time.Minute,
	1444 * time.Minute,
}

// exactly reports whether attempts were made at the planned times: never early, and less than a
// second late.
func exactly(at, want []time.Duration) bool {
	return slices.EqualFunc(
		at, want, func(a, b time.Duration) bool { return a >= b && a < b+time.Second },
	)
}

// TestSchedule checks that 16 attempts are made at the planned times, followed by a dead letter
// with 16 entries. This holds for each kind of refusal, unless other deliveries show that the host
// is down.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for name, respond := range map[string]func(*nethttp.Request, int) (int, string, time.Duration){
		"refused":       refuse,
		"500":           func(*nethttp.Request, int) (int, string, time.Duration) { return 500, "success", 0 },
		"no connection": func(*nethttp.Request, int) (int, string, time.Duration) { return 0, "", 0 },
		"slow": func(*nethttp.Request, int) (int, string, time.Duration) {
			return 200, "fail", 14 * time.Second
		},
		"redirect": func(*nethttp.Request, int) (int, string, time.Duration) { return 302, "success", 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				f := newFixture(t, dir, options(), newMerchants(respond), false)
				defer f.stop()
				if err := f.deliver("m1 order-1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(25 * time.Hour)
				synctest.Wait()
				if at := f.m.of("order-1"); !exactly(at, planned) {
					t.Errorf("attempts at %v, want %v", at, planned)
				}
				if len(f.letters) != 1 || len(f.letters[0].History) != 16 ||
					f.letters[0].Attempts != 16 || string(f.letters[0].Record) != "m1 order-1" {
					t.Errorf("dead letters %+v", f.letters)
				}
				if got, want := f.Parked(), (stream.ParkedCounts{Dead: 1}); got != want {
					t.Errorf("counts %+v, want %+v", got, want)
				}
			})
		})
	}
}

// TestLongRecordIDs checks that records get valid and different keys if their ids are too long for
// a key, as in a feed with long cursors.
func TestLongRecordIDs(t *testing.T) {
	o := options()
	o.IdempotencyKey = ""
	if _, err := o.Shape(stream.Schema{Open: true}); err != nil {
		t.Fatal(err)
	}
	b := streamtest.Lines("m1 a", "m1 b", "m1 c")
	b.Split()
	for i := range b.Records[1:] {
		b.Records[1+i].Origin.Key = strings.Repeat("x", 600)
	}
	e := newEvaluators(o)
	e.begin(b)
	seen := make(map[string]bool)
	for i := range b.Records {
		row, err := e.row(b, i, time.Now())
		if err != nil {
			t.Error(err)
		}
		seen[row.Key] = true
	}
	if id := string(b.AppendRecordID(nil, 0)); len(seen) != 3 || !seen[id] {
		t.Errorf("three records have the keys %v, want three with %s", seen, id)
	}
}

func TestSuccessEndsIt(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		f := newFixture(
			t,
			dir,
			options(),
			newMerchants(func(_ *nethttp.Request, n int) (int, string, time.Duration) {
				if n == 4 {
					return 200, " success\n", 0
				}
				return []int{200, 204, 404, 202}[n], "no", 0
			}),
			false,
		)
		defer f.stop()
		if err := f.deliver("m1 order-1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if at := f.m.of("order-1"); !exactly(at, planned[:5]) {
			t.Errorf("attempts at %v, want %v", at, planned[:5])
		}
		d, err := f.Deliveries().Delivery(t.Context(), "order-1")
		if err != nil || d.State != "done" || d.Last == nil ||
			d.Last.Status != 200 || len(d.Attempts) != 5 || d.URL != "https://m1.shops.example/order-1" {
			t.Errorf("the delivery is %+v, %v", d, err)
		}
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 1}) || len(f.letters) > 0 {
			t.Errorf("counts %+v, letters %v", got, f.letters)
		}
	})
}

func TestStopAndRetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Stop = `status == 422 and headers["x-final"] == nil`
		f := newFixture(
			t,
			dir,
			o,
			newMerchants(func(r *nethttp.Request, n int) (int, string, time.Duration) {
				switch r.URL.Path {
				case "/gone":
					return 410, "", 0
				case "/stopped":
					return 422, "", 0
				}
				return 429, "retry-after 600", 0
			}),
			false,
		)
		defer f.stop()
		if err := f.deliver("m1 gone", "m2 stopped", "m3 later"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if f.m.total("gone") != 1 || f.m.total("stopped") != 1 || len(f.letters) != 2 {
			t.Errorf("attempts %v, %d dead letters", f.m.attempts, len(f.letters))
		}
		if at := f.m.of("later"); !exactly(at, []time.Duration{0, 10 * time.Minute}) {
			t.Errorf("with Retry-After: 600 attempts at %v", at)
		}
	})
}

// TestRetryInFlight asks for a retry during an attempt that will fail. The retry follows this
// attempt at once, even if it was the last one of the schedule.
func TestRetryInFlight(t *testing.T) {
	for _, waits := range [][]time.Duration{{time.Hour}, {}} {
		bubble(t, func(t *testing.T, dir string) {
			slow := func(*nethttp.Request, int) (int, string, time.Duration) {
				return 500, "", 5 * time.Second
			}
			f := newFixture(t, dir, options(), newMerchants(slow), false)
			defer f.stop()
			f.o.schedule.Waits = waits
			if err := f.deliver("m1 order-1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if _, err := f.Deliveries().Retry(t.Context(), "order-1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if at := f.m.of("order-1"); !exactly(at, []time.Duration{0, 5 * time.Second}) {
				t.Errorf("with the waits %v, attempts at %v, want 0s and 5s", waits, at)
			}
		})
	}
}

// TestOperator checks retry and cancel, in the same process and from another one.
func TestOperator(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		f := newFixture(t, dir, options(), newMerchants(refuse), false)
		defer f.stop()
		if err := f.deliver("m1 order-1", "m2 order-2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if _, err := f.Deliveries().Retry(t.Context(), "order-1"); err != nil {
			t.Fatal(err)
		}
		other, err := f.o.OpenDeliveries(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := other.Cancel(t.Context(), "order-2"); err != nil || d.State != "cancelled" {
			t.Errorf("cancelled: %+v, %v", d, err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want := append(slices.Clone(planned[:5]), 5*time.Minute, 14*time.Minute)
		if at := f.m.of("order-1"); !exactly(at, want) {
			t.Errorf("attempts at %v, want %v", at, want)
		}
		if at := f.m.of("order-2"); !exactly(at, planned[:5]) {
			t.Errorf("a cancelled delivery has attempts at %v", at)
		}
		if got := f.Parked(); got != (stream.ParkedCounts{Waiting: 1, Cancelled: 1}) {
			t.Errorf("counts %+v", got)
		}
		if _, err := f.Deliveries().
			Retry(t.Context(), "order-2"); !errors.Is(
			err,
			stream.ErrDeliveryEnded,
		) {
			t.Errorf("retry of a cancelled delivery: %v", err)
		}
		if _, err := f.Deliveries().
			Cancel(t.Context(), "order-3"); !errors.Is(
			err,
			stream.ErrNoDelivery,
		) {
			t.Errorf("cancel of a key that is missing: %v", err)
		}
	})
}

// TestDeliveryOf checks that DeliveryOf finds a delivery by its key and a list of hosts. A newer
// delivery with the same key, but to a host that is not in the list, must not be found.
func TestDeliveryOf(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		f := newFixture(t, dir, options(), newMerchants(refuse), false)
		defer f.stop()
		if err := f.deliver("m1 order-1", "m2 order-1", "m2 order-2"); err != nil {
			t.Fatal(err)
		}
		first, second := []string{"m1.shops.example"}, []string{"m2.shops.example"}
		for _, c := range []struct {
			key   string
			owner stream.DeliveryOwner
			host  string
		}{
			{"order-1", stream.DeliveryOwner{Hosts: first}, "m1.shops.example:443"},
			{"order-1", stream.DeliveryOwner{Name: "m", Hosts: second}, "m2.shops.example:443"},
			{"order-2", stream.DeliveryOwner{Hosts: second}, "m2.shops.example:443"},
			{"order-2", stream.DeliveryOwner{Name: "m", Hosts: first}, ""},
			{"order-1", stream.DeliveryOwner{}, ""},
		} {
			d, err := f.Deliveries().DeliveryOf(t.Context(), c.key, c.owner)
			if d.Host != c.host || errors.Is(err, stream.ErrNoDelivery) != (c.host == "") {
				t.Errorf("%s of %+v: %+v, %v; want one at %q", c.key, c.owner, d, err, c.host)
			}
		}
	})
}

// TestManyOfOneHost checks that all due deliveries to a host are sent. The dispatcher starts only a
// few attempts at a host at a time, and all of them may end before it visits the host again.
func TestManyOfOneHost(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		m := newMerchants(func(*nethttp.Request, int) (int, string, time.Duration) {
			return 200, "success", time.Millisecond
		})
		f := newFixture(t, dir, options(), m, false)
		defer f.stop()
		var lines []string
		for n := range 100 {
			lines = append(lines, fmt.Sprintf("m1 order-%d", n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 100}) {
			t.Errorf("counts %+v after 10s", got)
		}
	})
}

// TestDownHost checks 100 deliveries to a host that is down for 27 hours. In the first 23 hours,
// the host must get few attempts. Each delivery must end with its last attempt, and its history
// must have an entry for each of the 16 planned attempts, including the skipped ones. Deliveries to
// other hosts must not be delayed.
func TestDownHost(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		f := newFixture(
			t,
			dir,
			options(),
			newMerchants(func(r *nethttp.Request, _ int) (int, string, time.Duration) {
				if strings.HasPrefix(r.URL.Host, "dead") {
					return 0, "", 30 * time.Second
				}
				return 200, "success", 10 * time.Millisecond
			}),
			false,
		)
		defer f.stop()
		var lines []string
		for n := range 100 {
			lines = append(
				lines, fmt.Sprintf("dead dead-%d", n), fmt.Sprintf("m%d well-%d", n%10, n),
			)
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for n := range 100 {
			if at := f.m.of(fmt.Sprintf("well-%d", n)); len(at) != 1 || at[0] > time.Second {
				t.Fatalf("well-%d has attempts at %v beside a dead host", n, at)
			}
		}
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		// The host gets as many attempts as it may have at once, and only probes after that.
		if n := f.m.total("dead"); n > 2*16+60 {
			t.Errorf("%d attempts at a dead host with 100 deliveries in 23 hours", n)
		}
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		if len(f.letters) != 100 {
			t.Fatalf("%d dead letters, want 100", len(f.letters))
		}
		for _, l := range f.letters {
			at := f.m.of(l.ID)
			if len(l.History) != 16 || l.History[15].Event != "refuse" || l.Attempts < 1 {
				t.Fatalf(
					"letter %s: %d entries, last %+v, attempts at %v", l.ID, len(l.History),
					l.History[len(l.History)-1], at,
				)
			}
		}
	})
}

// TestHostRecovers checks that a successful probe ends the outage, and that each delivery then
// follows its schedule again.
func TestHostRecovers(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		m := newMerchants(nil)
		m.respond = func(*nethttp.Request, int) (int, string, time.Duration) {
			if time.Since(m.start) < 10*time.Minute {
				return 503, "", 0
			}
			return 200, "success", 0
		}
		f := newFixture(t, dir, options(), m, false)
		defer f.stop()
		var lines []string
		for n := range 50 {
			lines = append(lines, fmt.Sprintf("m1 order-%d", n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 50}) {
			t.Errorf("counts %+v, want 50 delivered within two planned times of the recovery", got)
		}
	})
}

// TestSlowHosts checks that slow hosts take at most a quarter of the attempts.
func TestSlowHosts(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Attempts, o.PerHost = 20, 5
		f := newFixture(
			t,
			dir,
			o,
			newMerchants(func(r *nethttp.Request, _ int) (int, string, time.Duration) {
				if strings.HasPrefix(r.URL.Host, "slow") {
					return 200, "success", 20 * time.Second
				}
				return 200, "success", 10 * time.Millisecond
			}),
			false,
		)
		defer f.stop()
		var slow, well []string
		for n := range 100 {
			slow = append(slow, fmt.Sprintf("slow%d slow-%d", n%4, n))
			well = append(well, fmt.Sprintf("m%d well-%d", n%4, n))
		}
		if err := f.deliver(slow...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // now they are known to be slow
		if err := f.deliver(well...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := f.m.total("well"); n != 100 {
			t.Errorf("%d of 100 deliveries to fast hosts were sent within 2s beside slow hosts", n)
		}
	})
}

// TestRestart checks restarts at any time. Nothing is lost, no attempt is early, and planned times
// that passed during the stop are in the history.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		m := newMerchants(refuse)
		f := newFixture(t, dir, options(), m, false)
		if err := f.deliver("m1 order-1", "m2 order-2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		f.stop()
		time.Sleep(10 * time.Second)
		f = newFixture(t, dir, options(), m, false) // 30 s
		time.Sleep(40 * time.Second)
		f.stop()
		time.Sleep(2 * time.Hour)
		f = newFixture(
			t, dir, options(), m, false,
		) // 2 h 1 min 10 s: the attempts at 4, 14, 34, 64 min have passed
		defer f.stop()
		f.next = 0
		if err := f.deliver(
			"m1 order-1", "m2 order-2",
		); err != nil { // read again: the checkpoint was behind
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		want := append(slices.Clone(planned[:4]), 2*time.Hour+70*time.Second)
		want = append(want, planned[9:]...)
		for _, order := range []string{"order-1", "order-2"} {
			if at := m.of(order); !exactly(at, want) {
				t.Errorf("%s: attempts at %v, want %v", order, at, want)
			}
		}
		if len(f.letters) != 2 || len(f.letters[0].History) != 16 {
			t.Errorf("dead letters %+v", f.letters)
		}
		if n := f.host.Counted("deliveries_repeated"); n != 2 {
			t.Errorf("%d deliveries were recognized, want 2", n)
		}
	})
}

// TestOnce checks that Deliver returns after the first attempts in a finite run.
func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		f := newFixture(
			t,
			dir,
			options(),
			newMerchants(func(*nethttp.Request, int) (int, string, time.Duration) {
				return 200, "success", time.Second
			}),
			true,
		)
		defer f.stop()
		if err := f.deliver("m1 order-1", "m2 order-2"); err != nil {
			t.Fatal(err)
		}
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 2}) {
			t.Errorf("counts %+v when Deliver has returned", got)
		}
	})
}

// TestRefusedRecords checks that records that cannot be made into requests are refused, with their
// reasons.
func TestRefusedRecords(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.URL = `split(message, " ")[0]`
		f := newFixture(t, dir, o, newMerchants(refuse), false)
		defer f.stop()
		err := f.deliver("https://a.shops.example/ 1", "https://127.0.0.1/ 2",
			"http://a.shops.example/ 3", "x 4", "https://a.shops.example/")
		var split *stream.Split
		if !errors.As(err, &split) || len(split.Refused) != 1 ||
			len(split.Refused[0].Value.Records) != 4 || len(split.Rest) != 1 {
			t.Fatalf("outcome %v", err)
		}
		var reasons *stream.RefusedError
		if !errors.As(err, &reasons) || len(reasons.Reasons) != 4 {
			t.Errorf("reasons %v", err)
		}
		if got := f.Parked(); got != (stream.ParkedCounts{}) {
			t.Errorf("counts %+v", got)
		}
	})
}

func TestRequest(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Method, o.Headers = `"PU" + "T"`, map[string]expr.Text{
			"X-Merchant": `split(message, " ")[0]`,
		}
		o.Body = `"order=" + split(message, " ")[1]`
		f := newFixture(t, dir, o, newMerchants(refuse), false)
		defer f.stop()
		if err := f.deliver("m1 order-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r := f.m.requests[0]
		if r.Method != "PUT" || r.Header.Get("X-Merchant") != "m1" ||
			r.Header.Get("Idempotency-Key") != "order-1" ||
			r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("request %s %v", r.Method, r.Header)
		}
	})
}

// TestPruneKeepsUp checks that ended deliveries are deleted as fast as deliveries can end.
// Otherwise a store with many deliveries per second would become full of ended ones.
func TestPruneKeepsUp(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Parked.History = leastHistory
		m := newMerchants(func(*nethttp.Request, int) (int, string, time.Duration) {
			return 200, "success", 0
		})
		f := newFixture(t, dir, o, m, false)
		defer f.stop()
		const batches, each = 4, 500
		for k := range batches {
			lines := make([]string, each)
			for n := range lines {
				lines[n] = fmt.Sprintf("m%d o%d-%d", n, k, n)
			}
			if err := f.deliver(lines...); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(pruneEvery*f.refresh + f.refresh/2)
		synctest.Wait()
		if got := f.Parked(); got.Delivered != batches*each {
			t.Fatalf("counts %+v, want %d delivered", got, batches*each)
		}
		if bytes := f.store.LastTotals().Bytes; bytes != 0 {
			t.Errorf("after one deletion the store has %d bytes of ended deliveries", bytes)
		}
	})
}
