package syslog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
)

var january = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

func parsed(t *testing.T, text string) (map[string]any, bool) {
	t.Helper()
	record, ok := newParser(time.UTC, func() time.Time { return january }).parse([]byte(text), "10.0.0.1")
	var out map[string]any
	if err := json.Unmarshal(record, &out); err != nil {
		t.Fatalf("%q: %v", record, err)
	}
	return out, ok
}

func TestParse(t *testing.T) {
	year := time.Now().Year()
	for _, c := range []struct {
		text string
		ok   bool
		want string
	}{
		{
			`<165>1 2003-10-11T22:14:15.003Z host app 123 ID47 [ex@1 a="x\"y" b="2"] BOMless`, true,
			`2003-10-11T22:14:15.003Z host app 123 ID47 local4 20 notice 5 BOMless map[ex@1:map[a:x"y b:2]]`,
		},
		{"<13>1 - - - - - -", true, "<nil> <nil> <nil> <nil> <nil> user 1 notice 5 <nil> map[]"},
		{
			"<34>Jan  1 22:14:15 mymachine su[77]: 'su root' failed", true,
			fmt.Sprintf("%d-01-01T22:14:15Z mymachine su 77 <nil> auth 4 crit 2 'su root' "+
				"failed map[]", min(year, 2026)),
		},
		{"no syslog at all", false, "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> no syslog at all map[]"},
		{"<999>x", false, "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <999>x map[]"},
		{"", false, "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil>  map[]"},
	} {
		got, ok := parsed(t, c.text)
		var parts []string
		for _, name := range []string{
			"timestamp", "hostname", "app_name", "proc_id", "msg_id", "facility", "facility_code",
			"severity", "severity_code",
			"message", "structured_data",
		} {
			parts = append(parts, fmt.Sprint(got[name]))
		}
		if text := strings.Join(parts, " "); text != c.want || ok != c.ok {
			t.Errorf("%q:\n got %s %v\nwant %s %v", c.text, text, ok, c.want, c.ok)
		}
		if got["peer"] != "10.0.0.1" || len(got) != len(fields) {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}

// TestYear checks that a message of December that arrives in January gets the previous year.
func TestYear(t *testing.T) {
	p := newParser(time.UTC, func() time.Time { return january })
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	if p.fixYear(&at); at.Year() != 2025 {
		t.Errorf("the year is %d", at.Year())
	}
}

func newFrames(got *[]string, most int) *frames {
	return &frames{max: most, message: func(out *intake.Records, message []byte) {
		*got = append(*got, string(message))
		out.Add(message)
	}}
}

// feed passes text to f in reads of n bytes.
func feed(f *frames, text string, n int) error {
	for len(text) > 0 {
		k := copy(f.Space(), text[:min(n, len(text))])
		text = text[k:]
		if _, err := f.Frame(k); err != nil {
			return err
		}
	}
	f.Rest()
	return nil
}

func TestFrames(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		bad  string
	}{
		{"<1>a\n<2>b\r\n\n<3>last", []string{"<1>a", "<2>b", "<3>last"}, ""},
		{"5 <1>ab6 <2>a\nb<3>c\n4 <4>d", []string{"<1>ab", "<2>a\nb", "<3>c", "<4>d"}, ""},
		{"10 <1>ab", []string{"<1>ab"}, ""},
		{"12345678 x", nil, "a length"}, {"12x", nil, "a length"}, {"99 x", nil, "at most 50"},
		{strings.Repeat("x", 60), nil, "more than 50"}, {"", nil, ""}, {"7", []string{"7"}, ""},
	} {
		for _, n := range []int{1, 3, 1000} {
			var got []string
			err := feed(newFrames(&got, 50), c.text, n)
			if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q by %d: %v, want %q", c.text, n, err, c.bad)
			}
			if err == nil && !slices.Equal(got, c.want) {
				t.Errorf("%q by %d: %q, want %q", c.text, n, got, c.want)
			}
		}
	}
}

// FuzzFrames checks that the size of reads does not change the messages, that none is too long, and
// that each becomes a JSON object.
func FuzzFrames(f *testing.F) {
	for _, text := range []string{"<1>a\n<2>b\n", "5 <1>ab6 <2>a\nb", "10 <1>", "1", "\x00\n \n",
		"<34>Oct 11 22:14:15 h t: m\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var whole, single []string
		errA, errB := feed(newFrames(&whole, 100), text, 1<<20), feed(newFrames(&single, 100), text, 1)
		if (errA == nil) != (errB == nil) || !slices.Equal(whole, single) {
			t.Fatalf("%q and %q, %v and %v", whole, single, errA, errB)
		}
		for _, message := range whole {
			if len(message) > 100 {
				t.Errorf("a message of %d bytes", len(message))
			}
			parsed(t, message)
		}
	})
}
