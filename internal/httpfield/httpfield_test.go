package httpfield

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"120", 2 * time.Minute, true},
		{" 0 ", 0, true},
		{"1.5", 1500 * time.Millisecond, true},
		{".5", time.Second / 2, true},
		{"9223372036", 9223372036 * time.Second, true},
		{"9223372037", math.MaxInt64, true},
		{"99999999999999999999999", math.MaxInt64, true},
		{strings.Repeat("9", 400), math.MaxInt64, true}, // beyond a float64
		{"Sat, 21 Nov 2026 12:00:07 GMT", 7 * time.Second, true},
		{"Saturday, 21-Nov-26 12:00:07 GMT", 7 * time.Second, true},
		{"Sat Nov 21 12:00:07 2026", 7 * time.Second, true},
		{"Sat, 21 Nov 2020 12:00:07 GMT", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", math.MaxInt64, true},
	} {
		if got, ok := RetryAfter(c.value, now); got != c.want || ok != c.ok {
			t.Errorf("%q: %v, %v; want %v, %v", c.value, got, ok, c.want, c.ok)
		}
	}
	for _, invalid := range []string{"", ".", "-1", "+1", "1.2.3", "1e3", "0x10", "Inf", "soon"} {
		if got, ok := RetryAfter(invalid, now); got != 0 || ok {
			t.Errorf("%q: %v, %v; want 0, false", invalid, got, ok)
		}
	}
}

func TestSplit(t *testing.T) {
	got := Split(`"a,b\",c";r=1,"d`, ',')
	if want := []string{`"a,b\",c";r=1`, `"d`}; !slices.Equal(got, want) {
		t.Errorf("parts %q, want %q", got, want)
	}
}
