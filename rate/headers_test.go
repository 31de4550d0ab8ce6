package rate_test

import (
	"bufio"
	"math"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/rate"
)

var received = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // Unix time 1767225600

func parse(text string) (rate.Advice, bool) {
	lines := strings.ReplaceAll(text, "\n", "\r\n") + "\r\n\r\n"
	header, _ := textproto.NewReader(bufio.NewReader(strings.NewReader(lines))).ReadMIMEHeader()
	return rate.ParseHeaders(header, received)
}

func TestParseHeaders(t *testing.T) {
	const s = time.Second
	for _, v := range []struct {
		header string
		want   rate.Advice
	}{
		{"Content-Type: text/plain", rate.Advice{}},
		{"Retry-After: 30", rate.Advice{RetryAfter: 30 * s}},
		{"Retry-After:  1.5 ", rate.Advice{RetryAfter: 1500 * ms}},
		{"Retry-After: Thu, 01 Jan 2026 00:01:00 GMT", rate.Advice{RetryAfter: time.Minute}},
		{"Retry-After: Wed, 31 Dec 2025 23:59:00 GMT", rate.Advice{}},
		{"Retry-After: Thursday, 01-Jan-26 00:01:00 GMT", rate.Advice{RetryAfter: time.Minute}},
		{"Retry-After: 99999999999999999999", rate.Advice{RetryAfter: math.MaxInt64}},
		{"Retry-After: -1", rate.Advice{}},
		{"Retry-After: 1e3", rate.Advice{}},
		{"Retry-After: soon", rate.Advice{}},

		{`RateLimit: "default";r=50;t=30`, rate.Advice{Remaining: 50, Reset: 30 * s}},
		{"RateLimit: \"default\";r=50;t=30\nRateLimit-Policy: \"default\";q=100;w=60",
			rate.Advice{Remaining: 50, Reset: 30 * s, Limit: 100, Window: time.Minute}},
		{"RateLimit: \"day\";r=100;t=36000, \"a, b;\\\"r=1\";r=3;t=5\n" +
			"RateLimit-Policy: \"day\";q=1000;w=86400\nRateLimit-Policy: \"a, b;\\\"r=1\";q=10;w=6",
			rate.Advice{Remaining: 3, Reset: 5 * s, Limit: 10, Window: 6 * s}},
		{`RateLimit: "burst";r=0;t=5, "day";r=0;t=40000, "month";r=7;t=9`,
			rate.Advice{Reset: 40000 * s}},
		{`RateLimit: "default";r=x;t=30`, rate.Advice{}},
		{`RateLimit: "unterminated;r=1;t=30`, rate.Advice{}},

		{"RateLimit: limit=100, remaining=50, reset=5\nRateLimit-Policy: 100;w=60",
			rate.Advice{Remaining: 50, Reset: 5 * s, Limit: 100, Window: time.Minute}},
		{"RateLimit-Limit: 10, 10;w=1, 50;w=60\nRateLimit-Remaining: 4\nRateLimit-Reset: 1",
			rate.Advice{Remaining: 4, Reset: s, Limit: 10, Window: s}},

		// Draft 06.
		{"RateLimit-Policy: 100;w=60\nRateLimit-Limit: 100\nRateLimit-Remaining: 4\n" +
			"RateLimit-Reset: 9",
			rate.Advice{Remaining: 4, Reset: 9 * s, Limit: 100, Window: time.Minute}},
		{"RateLimit-Policy: 100;w=60\nX-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 4\n" +
			"X-RateLimit-Reset: 9",
			rate.Advice{Remaining: 4, Reset: 9 * s, Limit: 100, Window: time.Minute}},

		// GitHub.
		{"X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1767225660",
			rate.Advice{Reset: time.Minute, Limit: 5000}},
		{"X-RateLimit-Remaining: 9\nX-RateLimit-Reset: 1767225660500",
			rate.Advice{Remaining: 9, Reset: 60500 * ms}},
		// That window has ended.
		{"X-RateLimit-Remaining: 9\nX-RateLimit-Reset: 1767225600", rate.Advice{}},
		{"X-Rate-Limit-Remaining: 98.0\nX-Rate-Limit-Reset: 60",
			rate.Advice{Remaining: 98, Reset: time.Minute}},
		// Discord.
		{"X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1767225660\nX-RateLimit-Reset-After: 0.5",
			rate.Advice{Remaining: 1, Reset: 500 * ms}},
		{"X-RateLimit-Limit-Requests: 60\nX-RateLimit-Remaining-Requests: 59\n" + // OpenAI
			"X-RateLimit-Reset-Requests: 6m0s",
			rate.Advice{Limit: 60, Remaining: 59, Reset: 6 * time.Minute}},
		{"X-RateLimit-Remaining: 5\nX-RateLimit-Reset: 2026-01-01T00:00:10Z",
			rate.Advice{Remaining: 5, Reset: 10 * s}},
		{"X-RateLimit-Remaining: -5\nX-RateLimit-Reset: 10", rate.Advice{}},
		{"X-RateLimit-Limit: 99999999999", rate.Advice{Limit: math.MaxInt32}},
	} {
		got, ok := parse(v.header)
		if v.want.Remaining > 0 && v.want.Reset == 0 {
			t.Fatalf("the table wants %+v, whose Remaining means nothing", v.want)
		}
		if got.Reset == 0 {
			got.Remaining = 0 // means nothing
		}
		if got != v.want || ok && got == (rate.Advice{}) &&
			!strings.Contains(v.header, "1767225600") {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v", v.header, got, ok, v.want)
		}
	}
}

func FuzzParseHeaders(f *testing.F) {
	f.Add("30", `"default";r=50;t=30`, `"default";q=100;w=60`, "1767225660", "5")
	f.Add("Thu, 01 Jan 2026 00:01:00 GMT", "limit=100, remaining=50, reset=5", "100;w=60", "6m0s",
		"98.0")
	f.Add("-1", `"a\"`, `;;,,"`, "1e9", ".")
	f.Fuzz(func(t *testing.T, retryAfter, limit, policy, reset, remaining string) {
		for _, header := range []map[string][]string{
			{"Retry-After": {retryAfter}, "Ratelimit": {limit, policy},
				"Ratelimit-Policy": {policy, limit}},
			{"X-Ratelimit-Reset": {reset}, "X-Ratelimit-Remaining": {remaining},
				"X-Ratelimit-Limit": {policy}},
		} {
			a, ok := rate.ParseHeaders(header, received)
			if a.RetryAfter < 0 || a.Reset < 0 || a.Window < 0 || a.Remaining < 0 || a.Limit < 0 {
				t.Fatalf("%q: %+v has a negative value", header, a)
			}
			if ok != (a != rate.Advice{}) {
				t.Fatalf("%q: %+v, %v", header, a, ok)
			}
			l, err := rate.New(rate.Options{})
			if err != nil {
				t.Fatal(err)
			}
			l.Observe(a)
			if s := l.Status(); s.PausedFor > 330*time.Second || s.ExpectedWait > 330*time.Second {
				t.Fatalf("%q: %+v stops all events for longer than MaxPause and its jitter: %+v",
					header, a, s)
			}
		}
	})
}
