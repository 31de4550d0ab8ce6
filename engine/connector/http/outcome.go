//penstock:pure

package http

import (
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// maxRetryAfter caps what a receiver may ask for: beyond it, asking again costs less than
// believing.
const maxRetryAfter = time.Hour

// verdict is what an answer means.
type verdict struct {
	outcome control.Outcome
	after   time.Duration // Throttled
}

// judge says what a status means. keyed: the request carried our idempotency key. retryAfter is the
// header as it came, now the time at which it came.
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

// exceptions are what ClickHouse says of itself, by code: it answers with 500 to much that is the
// data's fault or the config's. The codes are those of its src/Common/ErrorCodes.cpp.
var exceptions = map[int]control.Outcome{
	6: control.Rejected, 26: control.Rejected, 27: control.Rejected, 38: control.Rejected, 41: control.Rejected, // cannot parse
	53: control.Rejected, 69: control.Rejected, 70: control.Rejected, 72: control.Rejected, // wrong type, out of bound, cannot convert
	117: control.Rejected, 131: control.Rejected, 321: control.Rejected, 349: control.Rejected, // incorrect data, too large, null
	469: control.Rejected, 691: control.Rejected, // a constraint is violated, an unknown value of an enum
	16: control.Misconfigured, 36: control.Misconfigured, 47: control.Misconfigured, 60: control.Misconfigured, // no such column, table
	62: control.Misconfigured, 81: control.Misconfigured, 115: control.Misconfigured, 164: control.Misconfigured, // syntax, setting
	192: control.Misconfigured, 193: control.Misconfigured, 194: control.Misconfigured, // user and password
	497: control.Misconfigured, 516: control.Misconfigured, // no right, authentication failed
	202: control.Throttled, 241: control.Throttled, 252: control.Throttled, 439: control.Throttled, // too many queries or parts, no memory
}

// judgeException gives an exception of ClickHouse precedence over the status: also behind a 200,
// where it was too late for another one, and of which the text then tells.
func judgeException(v verdict, code int, text []byte) verdict {
	if code == 0 && v.outcome == control.Delivered && strings.HasPrefix(string(text), "Code: ") {
		number, _, _ := strings.Cut(string(text[len("Code: "):]), ".")
		code, _ = strconv.Atoi(number)
	}
	if code == 0 {
		return v
	}
	if outcome, ok := exceptions[code]; ok {
		return verdict{outcome: outcome, after: v.after}
	}
	if v.outcome == control.Delivered {
		return verdict{outcome: control.Retryable}
	}
	return v
}

// after2xx gives what `accept` says precedence over a status that is, or is not, 2xx: what it takes
// is delivered, and what would be delivered without it is sent again.
func (v verdict) after2xx(accepted bool) verdict {
	switch {
	case accepted:
		return verdict{outcome: control.Delivered}
	case v.outcome == control.Delivered:
		return verdict{outcome: control.Retryable}
	}
	return v
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
