package retry

import (
	"math"
	"testing"
	"time"
)

func TestReadHint(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		retryAfter string
		rateLimit  []string
		want       time.Duration
		ok         bool
	}{
		{retryAfter: "120", want: 2 * time.Minute, ok: true},
		{retryAfter: " 0 ", want: 0, ok: true},
		{retryAfter: "9223372036", want: 9223372036 * time.Second, ok: true},
		{retryAfter: "9223372037", want: math.MaxInt64, ok: true},
		{retryAfter: "99999999999999999999999", want: math.MaxInt64, ok: true},
		{retryAfter: "-1"},
		{retryAfter: "+1"},
		{retryAfter: "1.5", want: 1500 * time.Millisecond, ok: true},
		{retryAfter: "soon"},
		{retryAfter: ""},
		{retryAfter: "Sat, 21 Nov 2026 12:00:07 GMT", want: 7 * time.Second, ok: true},
		{retryAfter: "Saturday, 21-Nov-26 12:00:07 GMT", want: 7 * time.Second, ok: true},
		{retryAfter: "Sat Nov 21 12:00:07 2026", want: 7 * time.Second, ok: true},
		// The date has passed, or one of the clocks is wrong.
		{retryAfter: "Sat, 21 Nov 2020 12:00:07 GMT", want: 0, ok: true},
		{retryAfter: "Fri, 31 Dec 9999 23:59:59 GMT", want: math.MaxInt64, ok: true},
		{rateLimit: []string{`"default";r=0;t=30`}, want: 30 * time.Second, ok: true},
		{rateLimit: []string{`"default";r=5;t=30`}},
		{rateLimit: []string{`"default";r=0`}},
		{rateLimit: []string{`"burst";r=0;t=5, "daily";r=0;t=4000`, `"other";r=9;t=9999`},
			want: 4000 * time.Second, ok: true},
		{rateLimit: []string{`"a,b;r=0;t=9";r=1;t=3`}},
		{rateLimit: []string{`"a\";r=0;t=9";r=0;t=3;pk=:cGs=:`}, want: 3 * time.Second, ok: true},
		{retryAfter: "7", rateLimit: []string{`"default";r=0;t=30`}, want: 7 * time.Second,
			ok: true},
		{retryAfter: "never", rateLimit: []string{`"default";r=0;t=30`}, want: 30 * time.Second,
			ok: true},
	} {
		if got, ok := readHint(c.retryAfter, c.rateLimit, now); got != c.want || ok != c.ok {
			t.Errorf("Retry-After %q, RateLimit %q: %v, %v; want %v, %v", c.retryAfter, c.rateLimit,
				got, ok, c.want, c.ok)
		}
	}
}

func FuzzReadHint(f *testing.F) {
	for _, s := range []string{"120", "Sat, 21 Nov 2026 12:00:07 GMT", `"a";r=0;t=3`, `"a\"`,
		";;,,", "\x00"} {
		f.Add(s, s)
	}
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, a, b string) {
		if d, ok := readHint(a, []string{b}, now); d < 0 || !ok && d != 0 {
			t.Errorf("%q, %q: %v, %v", a, b, d, ok)
		}
	})
}
