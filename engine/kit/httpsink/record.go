//penstock:pure

package httpsink

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// FieldOf returns the field with the given name in record i. If several fields have this name, it
// returns the last one, as most JSON parsers do.
func FieldOf(b *stream.Batch, i int, name string) (stream.Field, bool) {
	for _, f := range slices.Backward(b.FieldsOf(i)) {
		if b.Names[f.Name] == name {
			return f, true
		}
	}
	return stream.Field{}, false
}

// TimeOf returns the time in the given field of record i. The time has one of these forms: RFC 3339
// (with a space in place of the T, it needs no zone), Apache's format, or a Unix time in seconds,
// milliseconds, microseconds or nanoseconds. If field is empty, or the record has no such field, or
// the field contains no time, TimeOf returns the argument missing.
func TimeOf(b *stream.Batch, i int, field string, missing time.Time) time.Time {
	if f, ok := FieldOf(b, i, field); ok && field != "" {
		if at, ok := readTime(string(b.Value(f))); ok {
			return at
		}
	}
	return missing
}

// timeForms are the layouts of time.Parse that readTime tries, in this order.
var timeForms = []string{
	time.RFC3339Nano, "02/Jan/2006:15:04:05 -0700", "2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05",
}

// readTime parses a time in one of timeForms, or a Unix time. The size of a Unix time shows its
// unit. Example: 1700000000 is in seconds, 1700000000000 in milliseconds, since as seconds it would
// be in the distant future. Seconds may have a fraction, such as those of $msec in nginx.
func readTime(text string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil && n > 0 {
		nanos, err := strconv.ParseUint((fraction + "000000000")[:9], 10, 32)
		switch {
		case err != nil, fraction != "" && n >= 1e11:
			return time.Time{}, false
		case n < 1e11:
			return time.Unix(n, int64(nanos)), true
		case n < 1e14:
			return time.UnixMilli(n), true
		case n < 1e17:
			return time.UnixMicro(n), true
		}
		return time.Unix(0, n), true
	}
	for _, form := range timeForms {
		// Nanoseconds since 1970 in an int64 can represent these years.
		if at, err := time.Parse(form, text); err == nil && at.Year() >= 1678 && at.Year() < 2262 {
			return at, true
		}
	}
	return time.Time{}, false
}
