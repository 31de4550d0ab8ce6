//penstock:pure

package generate

import (
	"strconv"
	"time"
)

// start is the time of the first line.
var start = time.Date(2026, time.January, 5, 6, 0, 0, 0, time.UTC)

// common appends host, identity, user, time, request, status and size.
func (g *Generator) common(dst []byte, v *visit) []byte {
	dst = append(dst, v.visitor.host...)
	dst = append(dst, " - "...)
	if v.visitor.user == "" {
		dst = append(dst, '-')
	} else {
		dst = append(dst, v.visitor.user...)
	}
	dst = append(dst, " ["...)
	dst = append(dst, g.clf(v.at)...)
	dst = append(dst, `] "`...)
	dst = append(dst, v.method...)
	dst = append(dst, ' ')
	dst = append(dst, v.target...)
	dst = append(dst, ' ')
	dst = append(dst, v.protocol...)
	dst = append(dst, `" `...)
	dst = strconv.AppendInt(dst, int64(v.status), 10)
	dst = append(dst, ' ')
	if v.size < 0 {
		return append(dst, '-')
	}
	return strconv.AppendInt(dst, v.size, 10)
}

// combined appends the fields of common, and referrer and user agent.
func (g *Generator) combined(dst []byte, v *visit) []byte {
	dst = g.common(dst, v)
	dst = append(dst, ` "`...)
	dst = append(dst, v.referrer...)
	dst = append(dst, `" "`...)
	dst = append(dst, agents[v.visitor.agent]...)
	return append(dst, '"')
}

// clf returns the time in the common log format. It formats each second of log time only once.
func (g *Generator) clf(at int64) []byte {
	if s := at / 1e6; s != g.second {
		g.second = s
		g.stamp = start.Add(time.Duration(s)*time.Second).AppendFormat(g.stamp[:0],
			"02/Jan/2006:15:04:05 -0700")
	}
	return g.stamp
}

// json appends a nested object with values that programs often convert wrongly: text with escapes,
// integers beyond 2^53, fractions, null, and empty and mixed lists.
func (g *Generator) json(dst []byte, v *visit) []byte {
	dst = append(dst, `{"time":"`...)
	dst = start.Add(time.Duration(v.at)*time.Microsecond).AppendFormat(dst,
		"2006-01-02T15:04:05.000000Z07:00")
	dst = append(dst, `","level":"`...)
	dst = append(dst, level(v.status)...)
	dst = append(dst, `","service":"`...)
	dst = append(dst, v.page.service...)
	dst = append(dst, `","trace":{"id":"`...)
	dst = appendHex(appendHex(dst, v.trace[0]), v.trace[1])
	dst = append(dst, `","sampled":`...)
	dst = strconv.AppendBool(dst, v.trace[1]&7 == 0)
	dst = append(dst, `},"request":{"method":"`...)
	dst = append(dst, v.method...)
	dst = append(dst, `","path":"`...)
	dst = append(dst, v.target...)
	dst = append(dst, `","headers":{"user-agent":"`...)
	dst = append(dst, agents[v.visitor.agent]...)
	dst = append(dst, `","accept-language":`...)
	dst = append(dst, v.visitor.language...)
	dst = append(dst, `},"client":{"address":"`...)
	dst = append(dst, v.visitor.host...)
	dst = append(dst, `","user":`...)
	if v.visitor.user == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, `{"id":`...)
		dst = strconv.AppendUint(dst, v.visitor.id, 10)
		dst = append(dst, `,"name":"`...)
		dst = append(dst, v.visitor.user...)
		dst = append(dst, `"}`...)
	}
	dst = append(dst, `}},"response":{"status":`...)
	dst = strconv.AppendInt(dst, int64(v.status), 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, max(v.size, 0), 10)
	dst = append(dst, `,"duration_ms":`...)
	dst = appendMillis(dst, v.took)
	dst = append(dst, '}')
	return append(v.details(dst), '}')
}

// details appends the members that only some requests have.
func (v *visit) details(dst []byte) []byte {
	if v.page.item {
		dst = append(dst, `,"cart":{"items":[{"sku":"P-`...)
		dst = strconv.AppendUint(dst, v.item, 10)
		dst = append(dst, `","quantity":`...)
		dst = strconv.AppendUint(dst, v.qty, 10)
		dst = append(dst, `,"note":"`...)
		dst = append(dst, notes[v.item%uint64(len(notes))]...)
		dst = append(dst, `"}],"coupons":[]}`...)
	}
	switch {
	case v.status == 503:
		dst = append(dst, `,"error":{"kind":"timeout","after_ms":1e4,"retryable":true,`...)
		dst = append(dst, `"cause":{"kind":"dial","address":"10.0.3.7:5432"}}`...)
	case v.status >= 500:
		dst = append(dst,
			`,"error":{"kind":"panic","message":"index out of range [3] with length 3","stack":["shop/cart.go:218",`...)
		dst = append(dst, `"shop/http.go:77",null,"net/http/server.go:2294"]}`...)
	}
	return dst
}

func level(status int) string {
	switch {
	case status >= 500:
		return "error"
	case status >= 400:
		return "warn"
	}
	return "info"
}

func appendHex(dst []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}

// appendMillis appends a number of microseconds as milliseconds. It uses no floating-point number.
func appendMillis(dst []byte, micros int64) []byte {
	dst = strconv.AppendInt(dst, micros/1000, 10)
	rest := micros % 1000
	return append(dst, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}
