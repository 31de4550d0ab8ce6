package notify

import (
	nethttp "net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
)

func TestParseWaits(t *testing.T) {
	const s = time.Second
	for text, want := range map[string][]time.Duration{
		"":                 nil,
		" 15s ":            {15 * s},
		"15s, 1m 0.5":      {15 * s, time.Minute, s / 2},
		`["15s", 60, 1.5]`: {15 * s, time.Minute, s * 3 / 2},
		"[]":               {},
		"exponential base=1s factor=2 attempts=4": {s, 2 * s, 4 * s},
		"1.2345ms": {time.Millisecond},
	} {
		got, err := parseWaits(text)
		if err != nil || !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"soon", "15s x", `["15s", null]`, "[1", `{"a": 1}`, "-15s", "0s", "0.1ms", "400000000s",
		"fixed delay=1s",
		strings.Repeat("1s ", 1000), `["1s 2s"]`, `[[1]]`,
	} {
		if got, err := parseWaits(text); err == nil {
			t.Errorf("%.30q was read as %v", text, got)
		}
	}
}

// TestScheduleForms checks which texts of the option schedule are policies and which are
// expressions, and that mistakes in policies are reported.
func TestScheduleForms(t *testing.T) {
	const s = time.Second
	for text, want := range map[string][]time.Duration{
		"exponential base=1s factor=2 attempts=4": {s, 2 * s, 4 * s},
		"limit(fixed delay=1m; 2)":                {time.Minute},
		"merchant.plan":                           paymentSchedule,
		`plan == "gold" ? "5s" : ""`:              paymentSchedule,
	} {
		o := DefaultOptions()
		if err := o.Schedule.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		back, err := o.Schedule.MarshalText()
		if err != nil || string(back) != text {
			t.Errorf("%q was written as %q, %v", text, back, err)
		}
		if err := o.plan(); err != nil || !slices.Equal(o.schedule.Waits, want) {
			t.Errorf("%q: waits %v, %v, want %v", text, o.schedule.Waits, err, want)
		}
	}
	for text, want := range map[string]string{
		"exponential bas=1s": `"bas"`,
		"exponental base=1s": "unknown policy",
		"fixed delay=1s":     "has no end",
	} {
		o := DefaultOptions()
		if err := o.Schedule.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := o.plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	o := DefaultOptions()
	o.Schedule.Policy, o.Backoff = "limit(fixed delay=1m; 2)", "limit(fixed delay=1m; 3)"
	if err := o.plan(); err == nil {
		t.Error("two policies were taken")
	}
}

// TestOwnSchedules checks that each record may have a schedule of its own, and keeps it across
// restarts.
func TestOwnSchedules(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		if err := o.Schedule.UnmarshalText([]byte(`split(message, "|")[1]`)); err != nil {
			t.Fatal(err)
		}
		o.URL, o.IdempotencyKey = `"https://m1.shops.example/" + split(message, "|")[0]`, `split(message, "|")[0]`
		m := newMerchants(refuse)
		f := newFixture(t, dir, o, m, false)
		err := f.deliver("a|10s 20s", "b|", `c|["1m", "1h"]`, "d|[]")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		d, err := f.Deliveries().Delivery(t.Context(), "a")
		if err != nil || d.Planned != 3 || d.Attempt != 3 {
			t.Errorf("%+v, %v; want attempt 3 of 3", d, err)
		}
		f.stop()
		f = newFixture(t, dir, o, m, false)
		defer f.stop()
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		for order, want := range map[string][]time.Duration{
			"a": {0, 10 * time.Second, 30 * time.Second}, "b": planned,
			"c": {0, time.Minute, 61 * time.Minute}, "d": {0},
		} {
			if at := m.of(order); !exactly(at, want) {
				t.Errorf("%s: attempts at %v, want %v", order, at, want)
			}
		}
		if got := f.Parked(); got != (stream.ParkedCounts{Dead: 4}) {
			t.Errorf("counts %+v", got)
		}
		if err := f.deliver("e|whenever"); err == nil ||
			!strings.Contains(err.Error(), "schedule") {
			t.Errorf("a record without a valid schedule: %v", err)
		}
	})
}

// TestExhaustedKeep checks that a delivery at the end of its schedule stays parked until an
// operator decides.
func TestExhaustedKeep(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Exhausted, o.Schedule.List = exhaustedKeep, []time.Duration{time.Minute}
		m := newMerchants(nil)
		m.respond = func(r *nethttp.Request, _ int) (int, string, time.Duration) {
			if time.Since(m.start) < 2*time.Hour || r.URL.Path != "/a" {
				return 200, "fail", 0
			}
			return 200, "success", 0
		}
		f := newFixture(t, dir, o, m, false)
		defer f.stop()
		if err := f.deliver("m1 a", "m2 b", "m3 c"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Waiting: 3, Exhausted: 3}) ||
			len(f.letters) > 0 {
			t.Fatalf("counts %+v, letters %v", got, f.letters)
		}
		list, err := f.Deliveries().List(t.Context(), stream.DeliveryFilter{State: "exhausted"})
		if err != nil || len(list) != 3 || !list[0].Next.IsZero() || list[0].Attempt != 0 {
			t.Errorf("exhausted: %+v, %v", list, err)
		}
		time.Sleep(2 * time.Hour)
		for _, key := range []string{"a", "b"} {
			if _, err := f.Deliveries().Retry(t.Context(), key); err != nil {
				t.Error(err)
			}
		}
		if d, err := f.Deliveries().
			Cancel(t.Context(), "c"); err != nil ||
			d.State != "cancelled" {
			t.Errorf("%+v, %v", d, err)
		}
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Waiting: 1, Exhausted: 1, Delivered: 1, Cancelled: 1}) {
			t.Errorf("counts %+v", got)
		}
		if at := m.of("b"); !exactly(at, []time.Duration{0, time.Minute, 3 * time.Hour}) {
			t.Errorf("attempts of b at %v", at)
		}
	})
}
