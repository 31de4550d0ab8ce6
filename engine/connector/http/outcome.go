//penstock:pure

package http

import (
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// maxRetryAfter caps what a receiver may ask for: beyond it, asking again costs less than believing.
const maxRetryAfter = time.Hour

// verdict is what an answer means.
type verdict struct {
	outcome control.Outcome
	after   time.Duration // Throttled
}

// judge says what a status means. keyed: the request carried our idempotency key. retryAfter is the header as it came, now
// the time at which it came.
//
//	2xx                          delivered
//	408, 425, 5xx                retryable
//	429; 503 with Retry-After    throttled, as long as it says, at most an hour; 429 without: until the rate allows
//	400, 413, 422                rejected: never to be taken as it is. The engine halves a rejected batch until it has found
//	                             the records that are refused, or, after 413, until it is small enough
//	409                          delivered, when keyed: it was there already; else misconfigured
//	all else                     misconfigured: redirects, 401, 403, 404, 405, 407, 415, ...: the worker's fault, nobody's data
func judge(status int, keyed bool, retryAfter string, now time.Time) verdict {
	switch {
	case status >= 200 && status < 300:
		return verdict{outcome: control.Delivered}
	case status == 429, status == 503 && retryAfter != "":
		return verdict{outcome: control.Throttled, after: waitOf(retryAfter, now)}
	case status >= 500 && status < 600, status == 408, status == 425:
		return verdict{outcome: control.Retryable}
	case status == 400, status == 413, status == 422:
		return verdict{outcome: control.Rejected}
	case status == 409 && keyed:
		return verdict{outcome: control.Delivered}
	}
	return verdict{outcome: control.Misconfigured}
}

// waitOf reads Retry-After: seconds or an HTTP date. What cannot be read, or has passed, is 0.
func waitOf(retryAfter string, now time.Time) time.Duration {
	retryAfter = strings.TrimSpace(retryAfter)
	if retryAfter != "" && strings.Trim(retryAfter, "0123456789") == "" {
		seconds, err := strconv.ParseInt(retryAfter, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	for _, form := range dateForms {
		if at, err := time.Parse(form, retryAfter); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter)
		}
	}
	return 0
}

// dateForms are those of RFC 9110, section 5.6.7, the obsolete ones too.
var dateForms = []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC}
