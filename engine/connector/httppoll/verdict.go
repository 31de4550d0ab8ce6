//penstock:pure

package httppoll

import (
	"time"

	"github.com/penstock-io/penstock/rate"
)

// verdict is the meaning of a response's status.
type verdict uint8

// The verdicts.
const (
	answered      verdict = iota // the response has a page
	unchanged                    // 304: the page has not changed
	temporary                    // retry
	throttled                    // retry when the server allows it
	misconfigured                // an operator must change something
)

// judge returns the verdict on a status. conditional means that the request allowed the server to
// answer 304. retryAfter means that the response has the header Retry-After.
//
//	2xx                          answered
//	304                          unchanged, if the request was conditional
//	429, 503 with Retry-After    throttled
//	408, 425, other 5xx          temporary
//	all else                     misconfigured, for example 400, 401, 403, 404, 410
func judge(status int, conditional, retryAfter bool) verdict {
	switch {
	case status >= 200 && status < 300:
		return answered
	case status == 304 && conditional:
		return unchanged
	case status == 429, status == 503 && retryAfter:
		return throttled
	case status >= 500 && status < 600, status == 408, status == 425:
		return temporary
	}
	return misconfigured
}

// maxHold is the maximum wait that a server can demand. A longer one is reduced to it.
const maxHold = time.Hour

// demanded returns the wait that the server demands, at most maxHold. It comes from the header
// Retry-After, if v is throttled, or from headers that report an exhausted rate limit. The longer
// wait counts. A header may have a time in place of a duration. demanded then counts the wait from
// the header Date of the response, because the local clock may differ from the server's clock.
// Without Date, it counts from now.
func demanded(header map[string][]string, v verdict, now time.Time) time.Duration {
	if date := header["Date"]; len(date) > 0 {
		if at, err := time.Parse(dateForm, date[0]); err == nil {
			now = at
		}
	}
	advice, ok := rate.ParseHeaders(header, now)
	if !ok {
		return 0
	}
	wait := time.Duration(0)
	if v == throttled {
		wait = advice.RetryAfter
	}
	if advice.Reset > 0 && advice.Remaining == 0 {
		wait = max(wait, advice.Reset)
	}
	return min(wait, maxHold)
}

// dateForm is the layout of the header Date (RFC 9110, section 5.6.7).
const dateForm = "Mon, 02 Jan 2006 15:04:05 GMT"
