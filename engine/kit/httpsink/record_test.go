package httpsink

import (
	"testing"
	"time"
)

// TestUnixTimes checks the units of Unix times, and seconds with a fraction, such as those of $msec
// in nginx.
func TestUnixTimes(t *testing.T) {
	for text, want := range map[string]string{
		"1700000000":          "2023-11-14T22:13:20Z",
		"1700000000.123":      "2023-11-14T22:13:20.123Z",
		"1700000000.12345678": "2023-11-14T22:13:20.12345678Z",
		"1700000000123":       "2023-11-14T22:13:20.123Z",
		"1700000000123456":    "2023-11-14T22:13:20.123456Z",
		"1700000000123456789": "2023-11-14T22:13:20.123456789Z",
		"1700000000123.5":     "",
		"1.2.3":               "",
		"1700000000.x":        "",
		"-5":                  "",
		"":                    "",
	} {
		got := ""
		if at, ok := readTime(text); ok {
			got = at.UTC().Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
