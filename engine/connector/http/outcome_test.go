package http

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

func TestJudge(t *testing.T) {
	const delivered, throttled, retryable = control.Delivered, control.Throttled, control.Retryable
	const rejected, misconfigured = control.Rejected, control.Misconfigured
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status     int
		keyed      bool
		retryAfter string
		outcome    control.Outcome
		after      time.Duration
	}{
		{200, true, "", delivered, 0},
		{201, false, "", delivered, 0},
		{202, false, "", delivered, 0},
		{204, false, "", delivered, 0},
		{299, false, "5", delivered, 0},
		{101, true, "", misconfigured, 0},
		{301, true, "", misconfigured, 0},
		{304, true, "", misconfigured, 0},
		{307, true, "", misconfigured, 0},
		{400, true, "", rejected, 0},
		{401, true, "", misconfigured, 0},
		{403, true, "", misconfigured, 0},
		{404, true, "", misconfigured, 0},
		{405, true, "", misconfigured, 0},
		{407, true, "", misconfigured, 0},
		{408, true, "", retryable, 0},
		{409, true, "", delivered, 0},
		{409, false, "", misconfigured, 0},
		{410, true, "", misconfigured, 0},
		{413, true, "", rejected, 0},
		{415, true, "", misconfigured, 0},
		{418, true, "", misconfigured, 0},
		{422, true, "", rejected, 0},
		{425, true, "", retryable, 0},
		{429, true, "", throttled, 0},
		{429, true, "7", throttled, 7 * time.Second},
		{429, true, " 7 ", throttled, 7 * time.Second},
		{429, true, "7.5", throttled, 0},
		{429, true, "-7", throttled, 0},
		{429, true, "3601", throttled, time.Hour},
		{429, true, "99999999999999999999999", throttled, time.Hour},
		{429, true, "Sat, 21 Nov 2026 12:00:30 GMT", throttled, 30 * time.Second},
		{429, true, "Saturday, 21-Nov-26 12:00:30 GMT", throttled, 30 * time.Second},
		{429, true, "Sat Nov 21 12:00:30 2026", throttled, 30 * time.Second},
		{429, true, "Sat, 21 Nov 2026 11:00:00 GMT", throttled, 0},
		{429, true, "Sat, 21 Nov 2099 11:00:00 GMT", throttled, time.Hour},
		{500, true, "5", retryable, 0},
		{501, true, "", retryable, 0},
		{502, true, "", retryable, 0},
		{503, true, "", retryable, 0},
		{503, true, "2", throttled, 2 * time.Second},
		{504, true, "", retryable, 0},
		{599, true, "", retryable, 0},
		{600, true, "", misconfigured, 0},
		{999, true, "", misconfigured, 0},
	} {
		got := judge(c.status, c.keyed, c.retryAfter, now)
		if got.outcome != c.outcome || got.after != c.after {
			t.Errorf("judge(%d, %v, %q) = %v after %v, want %v after %v",
				c.status, c.keyed, c.retryAfter, got.outcome, got.after, c.outcome, c.after)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "Sat, 21 Nov 2026 12:00:30 GMT", "-1", "1e9", "00000000000000000000000000000000000009"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d := waitOf(s, now); d < 0 || d > maxRetryAfter {
			t.Errorf("waitOf(%q) = %v, want 0 to %v", s, d, maxRetryAfter)
		}
	})
}
