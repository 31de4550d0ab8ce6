//penstock:pure

// Package httpfield parses values of HTTP header fields that several packages read.
package httpfield

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// RetryAfter parses the value of a field Retry-After (RFC 9110 section 10.2.3): seconds, or a date
// in any of HTTP's forms. Some servers send a fraction of seconds, which is valid here, too. The
// parameter now is the time at which the response was received. A date in the past is a wait of 0.
// RetryAfter returns false if the value is empty or invalid.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if d, ok := Seconds(value); ok {
		return d, true
	}
	for _, form := range dates {
		if at, err := time.Parse(form, value); err == nil {
			return max(at.Sub(now), 0), true
		}
	}
	return 0, false
}

// dates are the forms of an HTTP date (RFC 9110 section 5.6.7).
var dates = []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC}

// Seconds parses a number of seconds that consists of digits with at most one point, such as 30 or
// 0.5. A number that is too large for a Duration becomes the largest Duration.
func Seconds(text string) (time.Duration, bool) {
	n, ok := Number(text)
	if !ok {
		return 0, false
	}
	return Duration(n), true
}

// Number parses digits with at most one point, such as 30 or 0.5.
func Number(text string) (float64, bool) {
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil || math.IsInf(n, 1)
}

// Duration converts seconds to a Duration, at most the largest one.
func Duration(seconds float64) time.Duration {
	if seconds >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(seconds * float64(time.Second))
}

// Split splits s at each sep that is not within a quoted string.
func Split(s string, sep byte) (parts []string) {
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
