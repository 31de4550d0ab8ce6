package httpsink

import (
	"errors"
	nethttp "net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

// outcomeOf returns the outcome of a response with the given status and headers. If it is
// throttled, outcomeOf also returns the time to wait.
func outcomeOf(status int, keyed bool, retryAfter string) (control.Outcome, time.Duration) {
	r := &Response{Method: "POST", Endpoint: "http://h/", Status: status, Header: nethttp.Header{}}
	if retryAfter != "" {
		r.Header.Set("Retry-After", retryAfter)
	}
	err := statusOutcome(r, keyed)
	if _, ok := errors.AsType[*StatusError](err); err != nil && !ok {
		return 0, -1 // the error does not contain the response
	}
	switch e := err.(type) {
	case nil:
		return control.Delivered, 0
	case *stream.Throttled:
		return control.Throttled, e.After
	case *stream.Rejected:
		return control.Rejected, 0
	case *stream.Misconfigured:
		return control.Misconfigured, 0
	}
	return control.Retryable, 0
}

// TestStatusOutcome runs in a bubble, whose clock starts at midnight UTC of 2000-01-01, because
// dates in Retry-After are compared with it.
func TestStatusOutcome(t *testing.T) { synctest.Test(t, testStatusOutcome) }

func testStatusOutcome(t *testing.T) {
	const delivered, throttled, retryable = control.Delivered, control.Throttled, control.Retryable
	const rejected, misconfigured = control.Rejected, control.Misconfigured
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
		{409, true, "", retryable, 0},
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
		{429, true, "7.5", throttled, 7500 * time.Millisecond},
		{429, true, "-7", throttled, 0},
		{429, true, "3601", throttled, time.Hour},
		{429, true, "99999999999999999999999", throttled, time.Hour},
		{429, true, "Sat, 01 Jan 2000 00:00:30 GMT", throttled, 30 * time.Second},
		{429, true, "Saturday, 01-Jan-00 00:00:30 GMT", throttled, 30 * time.Second},
		{429, true, "Sat Jan  1 00:00:30 2000", throttled, 30 * time.Second},
		{429, true, "Fri, 31 Dec 1999 23:00:00 GMT", throttled, 0},
		{429, true, "Wed, 21 Nov 2035 11:00:00 GMT", throttled, time.Hour},
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
		outcome, after := outcomeOf(c.status, c.keyed, c.retryAfter)
		if outcome != c.outcome || after != c.after {
			t.Errorf("%d, keyed: %v, Retry-After %q: %v after %v, want %v after %v",
				c.status, c.keyed, c.retryAfter, outcome, after, c.outcome, c.after)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "Sat, 01 Jan 2000 00:00:30 GMT", "-1", "1e9",
		"00000000000000000000000000000000000009"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if outcome, d := outcomeOf(429, true, s); outcome != control.Throttled || d < 0 ||
			d > time.Hour {
			t.Errorf("Retry-After %q: %v after %v, want throttled for 0 to 1h", s, outcome, d)
		}
	})
}
