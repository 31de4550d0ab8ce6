//penstock:pure

package retry

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// readHint returns the wait for which a server asks in the header of a response. The parameter now
// is the time at which the response was received. The field Retry-After (RFC 9110 section 10.2.3)
// holds seconds, or a date in any of HTTP's forms. Without Retry-After, readHint uses the field
// RateLimit (draft-ietf-httpapi-ratelimit-headers), in which r is the number of remaining requests
// and t the time until there are more. The hint is the longest t among the policies with r=0. If
// neither field is present and valid, readHint returns false. A date in the past is a wait of 0. A
// value too large for a Duration gives the largest Duration. The caller compares hints with
// Options.MaxHint.
func readHint(retryAfter string, rateLimits []string, now time.Time) (time.Duration, bool) {
	if text := strings.TrimSpace(retryAfter); text != "" {
		if n, ok := seconds(text); ok {
			return n, true
		}
		for _, form := range httpDates {
			if at, err := time.Parse(form, text); err == nil {
				return max(at.Sub(now), 0), true
			}
		}
	}
	return rateLimit(rateLimits)
}

// httpDates are the date formats of HTTP (RFC 9110 section 5.6.7).
var httpDates = []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC}

// seconds parses a number of seconds that consists of digits only. A number that is too large gives
// the largest Duration.
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

// rateLimit reads a structured list such as `"burst";r=0;t=5, "daily";r=100;t=40000`. Only a policy
// with nothing left (r=0) makes its t a hint.
func rateLimit(values []string) (hint time.Duration, ok bool) {
	for _, value := range values {
		for _, member := range splitUnquoted(value, ',') {
			t, present, exhausted := time.Duration(0), false, false
			for _, param := range splitUnquoted(member, ';') {
				name, text, _ := strings.Cut(strings.TrimSpace(param), "=")
				switch name {
				case "r":
					left, valid := seconds(text)
					exhausted = valid && left == 0
				case "t":
					t, present = seconds(text)
				}
			}
			if present && exhausted {
				hint, ok = max(hint, t), true
			}
		}
	}
	return hint, ok
}

// splitUnquoted splits s at each sep outside of quoted strings.
func splitUnquoted(s string, sep byte) (parts []string) {
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
