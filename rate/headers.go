//penstock:pure

package rate

import (
	"math"
	"strings"
	"time"

	"github.com/penstock-io/penstock/internal/httpfield"
)

// Advice is the rate limit that a server states in a response. The zero value states none.
type Advice struct {
	// RetryAfter is the time for which the server wants no request. Zero means that the server
	// states no such time. On a response other than 429 and 503, the field Retry-After may have
	// another meaning, such as when to poll again.
	RetryAfter time.Duration

	// Remaining is the number of events that the server allows until Reset has passed. Ignore it if
	// Reset is zero. If the server states several limits, Remaining and Reset belong to the limit
	// that is reached first.
	Remaining int
	Reset     time.Duration

	// Limit is the number of events that the server allows in each Window. Each of the two is
	// unknown if it is zero or less.
	Limit  int
	Window time.Duration
}

// ParseHeaders reads an Advice from a response header: an http.Header, or any map with canonical
// keys. The parameter now is the time at which the response was received. ParseHeaders returns
// false if the header states no rate limit. It understands
//
//	Retry-After: 30                          RFC 9110: seconds or a date
//	RateLimit: "default";r=5;t=30            draft-ietf-httpapi-ratelimit-headers-08 and later
//	RateLimit-Policy: "default";q=100;w=60
//	RateLimit: limit=100, remaining=5, reset=30      its draft 07
//	RateLimit-Remaining: 5                           its drafts up to 06
//	RateLimit-Reset: 30
//	X-RateLimit-Remaining: 5                         GitHub and many others; also X-Rate-Limit-*
//	X-RateLimit-Reset: 1767225600                    seconds, a Unix time in s or ms, a Go duration, RFC 3339
//	X-RateLimit-Reset-After: 0.5                     Discord
//	X-RateLimit-Remaining-Requests: 5                OpenAI
//
// ParseHeaders skips invalid values. A time that is too long for a Duration becomes the longest
// Duration.
func ParseHeaders(header map[string][]string, now time.Time) (Advice, bool) {
	var a Advice
	if d, ok := httpfield.RetryAfter(get(header, "Retry-After"), now); ok {
		a.RetryAfter = d
	}
	if !a.parseRateLimit(header["Ratelimit"], header["Ratelimit-Policy"]) {
		for _, f := range families {
			if a.parseFamily(header, f, now) {
				break
			}
		}
	}
	return a, a != Advice{}
}

// family has the header names of one convention for stating rate limits.
type family struct{ limit, remaining, reset, resetAfter string }

var families = []family{
	{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", ""},
	{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After"},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", ""},
	{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
		""},
}

func get(header map[string][]string, key string) string {
	if v := header[key]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// parseFamily reads the headers of one convention. It reports whether it found a limit or a number
// of remaining events.
func (a *Advice) parseFamily(header map[string][]string, f family, now time.Time) bool {
	found := false
	limit, params, _ := strings.Cut(get(header, f.limit), ";")
	limit, _, _ = strings.Cut(limit, ",")
	if n, ok := parseCount(strings.TrimSpace(limit)); ok {
		found = true
		if a.Window == 0 { // otherwise RateLimit-Policy states the limit
			a.Limit = n
		}
		for p := range strings.FieldsFuncSeq(params, func(r rune) bool {
			return r == ';' || r == ','
		}) {
			if w, ok := strings.CutPrefix(strings.TrimSpace(p), "w="); ok && a.Window == 0 {
				a.Window, _ = httpfield.Seconds(w)
			}
		}
	}
	remaining, ok := parseCount(get(header, f.remaining))
	if !ok {
		return found
	}
	reset, ok := parseReset(get(header, f.reset), now)
	if after, valid := httpfield.Seconds(get(header, f.resetAfter)); valid {
		reset, ok = after, true
	}
	if ok {
		a.Remaining, a.Reset = remaining, reset
	}
	return true
}

// parseRateLimit reads the headers RateLimit and RateLimit-Policy, which may hold several limits.
// It reports whether RateLimit states one. Up to draft 06, other headers state the remaining
// events.
func (a *Advice) parseRateLimit(limits, policies []string) bool {
	found, name := false, ""
	for member := range members(limits) {
		remaining, reset, key := -1, time.Duration(0), ""
		for i, part := range httpfield.Split(member, ';') {
			k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
			if i == 0 {
				key = k
			}
			switch k {
			case "r":
				if n, ok := parseCount(v); ok {
					remaining = n
				}
			case "t":
				reset, _ = httpfield.Seconds(v)
			case "limit", "remaining", "reset": // in draft 07 these are members of one limit
				found = a.parseMember(k, v) || found
			}
		}
		if remaining < 0 {
			continue
		}
		if a.Reset == 0 || bindsBefore(remaining, reset, a.Remaining, a.Reset) {
			a.Remaining, a.Reset, name = remaining, reset, key
		}
		found = true
	}
	for member := range members(policies) {
		a.parsePolicy(member, name)
	}
	return found
}

// bindsBefore reports whether a limit that leaves r events for the time t is reached before another
// limit. The limit with fewer events left is reached first. If both leave equally many events, the
// one with the longer time counts as reached first.
func bindsBefore(r int, t time.Duration, other int, otherT time.Duration) bool {
	return r < other || r == other && t > otherT
}

func (a *Advice) parseMember(key, value string) bool {
	if key == "reset" {
		d, ok := httpfield.Seconds(value)
		if ok {
			a.Reset = d
		}
		return ok
	}
	n, ok := parseCount(value)
	switch {
	case !ok:
	case key == "limit":
		a.Limit = n
	default:
		a.Remaining = n
	}
	return ok
}

// parsePolicy reads a member of RateLimit-Policy: "name";q=100;w=60, or 100;w=60 up to draft 07. It
// uses the member if the member has the same name as the limit that is reached first, or if one of
// them has no name. After it has used a member with a window, it ignores the others.
func (a *Advice) parsePolicy(member, name string) {
	quota, window, key := 0, time.Duration(0), ""
	for i, part := range httpfield.Split(member, ';') {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case i == 0:
			key = k
			if n, ok := parseCount(k); ok {
				quota, key = n, name
			}
		case k == "q":
			quota, _ = parseCount(v)
		case k == "w":
			window, _ = httpfield.Seconds(v)
		}
	}
	if quota <= 0 || name != "" && key != name || a.Window > 0 {
		return
	}
	a.Limit, a.Window = quota, window
}

// members iterates over the members of a structured list that may be spread over several lines.
func members(lines []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for _, m := range httpfield.Split(line, ',') {
				if m = strings.TrimSpace(m); m != "" && !yield(m) {
					return
				}
			}
		}
	}
}

const (
	unixSeconds = 1e9  // a reset above it is not seconds from now, but a Unix time;
	unixMillis  = 1e12 // above this, it is a Unix time in milliseconds
)

func parseReset(s string, now time.Time) (time.Duration, bool) {
	if n, ok := httpfield.Number(s); ok {
		switch {
		case n > unixMillis:
			return max(httpfield.Duration(n/1000-float64(now.UnixMilli())/1000), 0), true
		case n > unixSeconds:
			return max(httpfield.Duration(n-float64(now.UnixMilli())/1000), 0), true
		}
		return httpfield.Duration(n), true
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, true
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

// parseCount reads a number of events. A fraction is cut off.
func parseCount(s string) (int, bool) {
	n, ok := httpfield.Number(s)
	return int(min(n, math.MaxInt32)), ok
}
