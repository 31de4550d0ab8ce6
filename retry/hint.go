//penstock:pure

package retry

import (
	"strings"
	"time"

	"github.com/penstock-io/penstock/internal/httpfield"
)

// readHint returns the wait for which a server asks in the header of a response. The parameter now
// is the time at which the response was received. Without a valid Retry-After, readHint uses the
// field RateLimit (draft-ietf-httpapi-ratelimit-headers), in which r is the number of remaining
// requests and t the time until there are more. The hint is the longest t among the policies with
// r=0. If neither field is present and valid, readHint returns false. A date in the past is a wait
// of 0. A value too large for a Duration gives the largest Duration. The caller compares hints with
// Options.MaxHint.
func readHint(retryAfter string, rateLimits []string, now time.Time) (time.Duration, bool) {
	if d, ok := httpfield.RetryAfter(retryAfter, now); ok {
		return d, true
	}
	return rateLimit(rateLimits)
}

// rateLimit reads a structured list such as `"burst";r=0;t=5, "daily";r=100;t=40000`. Only a policy
// with nothing left (r=0) makes its t a hint.
func rateLimit(values []string) (hint time.Duration, ok bool) {
	for _, value := range values {
		for _, member := range httpfield.Split(value, ',') {
			t, present, exhausted := time.Duration(0), false, false
			for _, param := range httpfield.Split(member, ';') {
				name, text, _ := strings.Cut(strings.TrimSpace(param), "=")
				switch name {
				case "r":
					left, valid := httpfield.Seconds(text)
					exhausted = valid && left == 0
				case "t":
					t, present = httpfield.Seconds(text)
				}
			}
			if present && exhausted {
				hint, ok = max(hint, t), true
			}
		}
	}
	return hint, ok
}
