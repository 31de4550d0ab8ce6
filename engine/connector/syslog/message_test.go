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
	const stamp = "2026-01-01T00:00:00Z"
	for _, c := range []struct {
		text string
		ok   bool
		want string
	}{
		{
			`<165>1 2003-10-11T22:14:15.003Z host app 123 ID47 [ex@1 a="x\"y" b="2"] BOMless`, true,
			`2003-10-11T22:14:15.003Z host app 123 ID47 local4 20 notice 5 BOMless map[ex@1:map[a:x"y b:2]]`,
		},
		{
			"<34>1 - - - - - - \ufeff'su root' failed", true,
			"<nil> <nil> <nil> <nil> <nil> auth 4 crit 2 'su root' failed map[]",
		},
		{
			"<34>2003-10-11T22:14:15.120+02:00 mymachine su[77]: 'su root' failed", true,
			"2003-10-11T22:14:15.12+02:00 mymachine su 77 <nil> auth 4 crit 2 'su root' failed map[]",
		},
		{"<13>1 - - - - - -", true, "<nil> <nil> <nil> <nil> <nil> user 1 notice 5 <nil> map[]"},
		{
			"<34>Jan  1 22:14:15 mymachine su[77]: 'su root' failed", true,
			"2026-01-01T22:14:15Z mymachine su 77 <nil> auth 4 crit 2 'su root' failed map[]",
		},
		{"no syslog at all", false, "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> no syslog at all map[]"},
		{"<999>x", false, "<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <999>x map[]"},
		// Messages with mistakes: the record has the whole text, and the fields before the mistake.
		{
			"<034>1 - h a p m - x", false,
			"<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil> <034>1 - h a p m - x map[]",
		},
		{
			`<13>1 - h a p m [i a="1" b="]"] x`, false,
			`<nil> h a p m user 1 notice 5 <13>1 - h a p m [i a="1" b="]"] x map[i:map[a:1]]`,
		},
		{
			`<13>1 - h a p m [j][i a="1" a="2"][i b="3"] x`, false,
			`<nil> h a p m user 1 notice 5 <13>1 - h a p m [j][i a="1" a="2"][i b="3"] x ` +
				"map[i:map[a:2 b:3] j:map[]]",
		},
		{
			"<13>1 - h a\n<13>1 - - - - - x", false,
			"<nil> h <nil> <nil> <nil> user 1 notice 5 <13>1 - h a\n<13>1 - - - - - x map[]",
		},
		{
			"<13>Jan  1 00:00:00 h a[1]: \x1b[1mx", false,
			stamp + " h a 1 <nil> user 1 notice 5 <13>Jan  1 00:00:00 h a[1]: \x1b[1mx map[]",
		},
		// Brackets that do not belong to a tag stay in the message.
		{
			"<13>Jan  1 00:00:00 h a[1 x", true,
			stamp + " h a <nil> <nil> user 1 notice 5 a[1 x map[]",
		},
		{
			"<13>Jan  1 00:00:00 h[1] a[]: x", true,
			stamp + " h[1] a <nil> <nil> user 1 notice 5 x map[]",
		},
		{
			"<13>Jan  1 00:00:00 x ", true,
			stamp + " <nil> <nil> <nil> <nil> user 1 notice 5 x  map[]",
		},
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

// TestParseAllocations checks that a message costs no memory once the buffers have their sizes.
func TestParseAllocations(t *testing.T) {
	p := newParser(time.UTC, func() time.Time { return january })
	for _, text := range []string{
		`<165>1 2003-10-11T22:14:15.003Z host app 123 ID47 [ex@1 b="x\"y" a="2"][id] text`,
		"<34>Jan  1 22:14:15 mymachine su[77]: 'su root' failed", "no syslog at all",
	} {
		message := []byte(text)
		if n := testing.AllocsPerRun(100, func() { p.parse(message, "10.0.0.1") }); n > 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

// TestYear checks the years of timestamps, which contain none. A message of December that arrives
// in January gets the previous year. A message from a clock that is ahead may get the next year.
func TestYear(t *testing.T) {
	now := january
	p := newParser(time.UTC, func() time.Time { return now })
	for _, c := range []struct {
		now         time.Time
		stamp, want string
	}{
		{january, "Dec 31 23:59:59", "2025-12-31T23:59:59Z"},
		{january.Add(-24*time.Hour - 2*time.Second), "Jan  1 00:00:03", "2026-01-01T00:00:03Z"},
		{january, "Jan  3 00:00:00", "2026-01-03T00:00:00Z"},
		{january, "Jan  3 00:00:01", "2025-01-03T00:00:01Z"},
		{january.AddDate(1, 0, 0), "Jan 02 00:00:00", "2027-01-02T00:00:00Z"},
		{january.AddDate(2, 2, 0), "Feb 29 00:00:00", "2028-02-29T00:00:00Z"},
		{january.AddDate(3, 0, 0), "Feb 29 00:00:00", "2028-02-29T00:00:00Z"},
		{january.AddDate(2, 1, 0), "Feb 29 00:00:00", ""}, // 2028 would be in the future
		{january, "Feb 29 00:00:00", ""},                  // 2025 to 2027 have none
		{january, "Mar  1 00:00:00", "2025-03-01T00:00:00Z"},
		{january, "Feb 30 00:00:00", ""},
	} {
		now = c.now
		record, ok := p.parse([]byte("<34>"+c.stamp+" host text"), "")
		want := `{"timestamp":"` + c.want + `"`
		if c.want == "" {
			want = `{"timestamp":null`
		}
		if ok != (c.want != "") || !strings.HasPrefix(string(record), want) {
			t.Errorf("%s at %v: %s %v, want %s", c.stamp, c.now, record, ok, c.want)
		}
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
		// without a priority and without a line end
		{"Oct 11 22:14:15 h t: m", []string{"Oct 11 22:14:15 h t: m"}, ""},
		{"hello world", []string{"hello world"}, ""}, {" x", []string{" x"}, ""},
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

// TestSpace checks the size of Space, the part of the buffer for the next read. Each read that
// fills it doubles the buffer, up to maxSpace. A small read does not shrink the buffer. A message
// longer than maxSpace enlarges the buffer further. After such a message, the size is minSpace
// again.
func TestSpace(t *testing.T) {
	var got []string
	f := newFrames(&got, 100<<10)
	read := func(text string) {
		t.Helper()
		n := copy(f.Space(), text)
		if _, err := f.Frame(n); err != nil || n < len(text) {
			t.Fatalf("%d bytes of %d: %v", n, len(text), err)
		}
	}
	short := "<1>" + strings.Repeat("x", 60) + "\n"
	for _, c := range []struct{ fill, want int }{
		{0, minSpace}, {0, minSpace}, {1, minSpace}, {1, 2 * minSpace}, {1, maxSpace},
		{0, maxSpace}, {1, maxSpace}, {0, maxSpace},
	} {
		if n := len(f.Space()); n != c.want {
			t.Errorf("the space is %d bytes, want %d", n, c.want)
		}
		read(strings.Repeat(short, max(1, c.fill*len(f.Space())/len(short))))
	}
	read(strings.Repeat("x", 10<<10))
	for range 8 {
		read(strings.Repeat("x", minSpace))
	}
	read("\n")
	if n := len(f.Space()); n != minSpace || len(got[len(got)-1]) != 42<<10 {
		t.Errorf("after a long message the space is %d bytes, want %d", n, minSpace)
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
