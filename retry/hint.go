//penstock:pure

package retry

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads how long a server wants to be left alone out of the header of its answer, seen at now: the field
// Retry-After (RFC 9110 section 10.2.3: seconds, or a date in any form that HTTP allows), and without it the field
// RateLimit (draft-ietf-httpapi-ratelimit-headers: the longest t of the policies whose r is 0). false: it does not say,
// or says nothing that can be understood. A date that has passed is a hint of 0. Values too large for a Duration are
// the largest Duration: bounding is the caller's part, HintLimit's in this package.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if text := strings.TrimSpace(h.Get("Retry-After")); text != "" {
		if n, ok := seconds(text); ok {
			return n, true
		}
		if at, err := http.ParseTime(text); err == nil {
			return max(at.Sub(now), 0), true
		}
	}
	return rateLimit(h.Values("RateLimit"))
}

// seconds reads a number of digits only, saturating.
func seconds(text string) (time.Duration, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, true
}

// rateLimit reads a structured list such as `"burst";r=0;t=5, "daily";r=100;t=40000`: only a policy with nothing left
// (r=0) makes its t a hint.
func rateLimit(values []string) (hint time.Duration, ok bool) {
	for _, value := range values {
		for _, member := range outside(value, ',') {
			t, said, empty := time.Duration(0), false, false
			for _, param := range outside(member, ';') {
				name, text, _ := strings.Cut(strings.TrimSpace(param), "=")
				switch name {
				case "r":
					left, valid := seconds(text)
					empty = valid && left == 0
				case "t":
					t, said = seconds(text)
				}
			}
			if said && empty {
				hint, ok = max(hint, t), true
			}
		}
	}
	return hint, ok
}

// outside splits at sep where that stands outside of a quoted string.
func outside(s string, sep byte) (parts []string) {
	quoted, from := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}

// statusAction is what an HTTP status asks for. keyed: the request carried an Idempotency-Key, whose draft gives some
// statuses a meaning of their own (draft-ietf-httpapi-idempotency-key-header-07, section 2.7): 409, the first request
// is still being worked on; 422, the key was used for another request; 400, the key is missing.
func statusAction(status int, keyed bool) Action {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Retry
	case http.StatusMisdirectedRequest:
		return Failover
	case http.StatusUnauthorized:
		return Refresh
	case http.StatusConflict:
		if keyed {
			return Retry
		}
	}
	// What is left of 5xx says that this server will never do it (501, 505), or is not standard: CDNs use 520 to 527
	// for an origin that cannot be reached.
	if status >= 520 && status <= 527 {
		return Retry
	}
	return Fail
}

// idempotent reports whether doing the request twice is the same as doing it once (RFC 9110 section 9.2.2), or the
// server is told how to see to that.
func idempotent(method string, h http.Header) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return keyedBy(h)
}

// keyedBy reports whether h has a key by which the server recognizes a second copy.
func keyedBy(h http.Header) bool {
	return h.Get("Idempotency-Key") != "" || h.Get("X-Idempotency-Key") != ""
}
