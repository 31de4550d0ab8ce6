package syslog

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	golang "github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/rfc3164"
	"github.com/leodido/go-syslog/v4/rfc5424"
)

// reference parses messages with the library go-syslog, as records like those of parser.
type reference struct{ modern, old golang.Machine }

func newReference(zone *time.Location) *reference {
	return &reference{
		modern: rfc5424.NewMachine(rfc5424.WithBestEffort()),
		old: rfc3164.NewMachine(
			rfc3164.WithBestEffort(), rfc3164.WithYear(rfc3164.CurrentYear{}),
			rfc3164.WithLocaleTimezone(zone), rfc3164.WithLenientDay(),
			rfc3164.WithEmbeddedNewlines(), rfc3164.WithRFC3339(),
		),
	}
}

var (
	controls    = regexp.MustCompile(`[\x00-\x08\x0B\x0C\x0E-\x1F\x7F]`)
	yearForm    = regexp.MustCompile(`^<\d+> *\d{4}-`)
	versionForm = regexp.MustCompile(`^<\d+>[1-9]\d? `)
)

func (r *reference) parse(text string) (record map[string]any, ok bool) {
	var base golang.Base
	data := map[string]map[string]string{}
	machine := r.old
	if versionForm.MatchString(text) {
		machine = r.modern
	}
	m, err := machine.Parse([]byte(text))
	switch m := m.(type) {
	case *rfc5424.SyslogMessage:
		base = m.Base
		if m.StructuredData != nil {
			data = *m.StructuredData
		}
	case *rfc3164.SyslogMessage:
		base = m.Base
		hasYear := yearForm.MatchString(text)
		if t := base.Timestamp; t != nil && !hasYear && t.After(time.Now().Add(24*time.Hour)) {
			*t = t.AddDate(-1, 0, 0)
		}
	}
	// The library accepts messages of RFC 3164 with a control character, and messages with some
	// other mistakes, but loses their text. Treat these messages as invalid.
	ok = err == nil && (machine == r.modern || base.Message != nil && !controls.MatchString(text))
	if !ok {
		base.Message = &text
	}
	record = map[string]any{
		"timestamp": nil, "facility": nil, "facility_code": nil, "severity": nil,
		"severity_code": nil, "peer": "10.0.0.1", "structured_data": map[string]any{},
		"hostname": optional(base.Hostname), "app_name": optional(base.Appname),
		"proc_id": optional(base.ProcID), "msg_id": optional(base.MsgID),
		"message": optional(base.Message),
	}
	if base.Timestamp != nil {
		record["timestamp"] = base.Timestamp.Format(time.RFC3339Nano)
	}
	if base.Priority != nil {
		facility, severity := *base.Facility, *base.Severity
		record["facility"], record["facility_code"] = facilities[facility], float64(facility)
		record["severity"], record["severity_code"] = severities[severity], float64(severity)
	}
	for id, params := range data {
		element := map[string]any{}
		for name, value := range params {
			element[name] = valid(value)
		}
		record["structured_data"].(map[string]any)[id] = element
	}
	return record, ok
}

// optional returns a text as JSON has it.
func optional(text *string) any {
	if text == nil {
		return nil
	}
	return valid(*text)
}

// valid replaces each byte that is not UTF-8.
func valid(text string) string { return string([]rune(text)) }

const stamp = `^<\d+> *([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[^ ]+) +`

// differences are the texts whose records deliberately differ from those of the library.
var differences = []struct {
	reason string
	text   *regexp.Regexp
	fields []string // that differ; all if none are listed
	failed bool     // only messages that are not parsed
	rare   bool     // depends on the current year
}{
	{
		reason: "February 29 is no date in most years; the library takes it as March 1",
		text:   regexp.MustCompile(`^<\d+> *Feb 29 `), rare: true,
	},
	{
		reason: "the library takes the byte order mark as part of the text",
		text:   regexp.MustCompile(`^<\d+>\d+ (?s:.*) \x{FEFF}`), fields: []string{"message"},
	},
	{
		reason: "a priority with leading zeros or above 191 is none; " +
			"the library takes its first digits",
		text:   regexp.MustCompile(`^<(0\d|[2-9]\d\d|19[2-9]|\d{4}|\d*[^\d>]|\d*$)`),
		fields: []string{"facility", "facility_code", "severity", "severity_code"},
	},
	{
		reason: "after a mistake the library parses a following line as another message",
		text:   regexp.MustCompile(`^<\d+>\d+ (?s:.*)[\n\r]`), failed: true,
	},
	{
		reason: "of structured data with a mistake, the library drops a parameter before it " +
			"and the elements after an id that occurs twice",
		text:   regexp.MustCompile(`^<\d+>\d+ (\S+ ){5}\[`),
		fields: []string{"structured_data"}, failed: true,
	},
	{
		reason: "a word without a text after it is the message; " +
			"the library also takes it as hostname",
		text:   regexp.MustCompile(stamp + `[^ :]+ $`),
		fields: []string{"hostname"},
	},
	{
		reason: "at a bracket that does not belong to a tag, the library begins hostname, " +
			"proc_id or message after the bracket",
		text: regexp.MustCompile(stamp + `([^ :]+ +)?[^ :\[]+\[` +
			`([^\[\] ]*([\[ ]|$)|\]|[^\[\] ]+\]([^:]|:[^ ]|: ?$|$))`),
	},
}

// comparison compares the records of texts with those of the library.
type comparison struct {
	p    *parser
	r    *reference
	seen []bool // differences that have occurred
}

func newComparison(t testing.TB) *comparison {
	zone, err := time.LoadLocation("Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	return &comparison{
		p: newParser(zone, time.Now), r: newReference(zone), seen: make([]bool, len(differences)),
	}
}

func (c *comparison) check(t *testing.T, text string) {
	t.Helper()
	data, ok := c.p.parse([]byte(text), "10.0.0.1")
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatalf("%q became %q: %v", text, data, err)
	}
	want, wantOK := c.r.parse(text)
	for i, d := range differences {
		if !d.text.MatchString(text) || d.failed && ok {
			continue
		}
		for _, name := range d.fields {
			if !reflect.DeepEqual(got[name], want[name]) {
				want[name], c.seen[i] = got[name], true
			}
		}
		if d.fields == nil && (ok != wantOK || !reflect.DeepEqual(got, want)) {
			want, wantOK, c.seen[i] = got, ok, true
		}
	}
	if ok != wantOK || !reflect.DeepEqual(got, want) {
		t.Errorf("%q:\n got %v %v\nwant %v %v", text, got, ok, want, wantOK)
	}
}

// referenceTexts are messages of both formats and of neither.
var referenceTexts = []string{
	"", "<", "<34>", "no syslog at all", "<999>x", "<034>1 - - - - - -",
	"<1234>Jan  1 00:00:00 x", "<>x",
	`<165>1 2003-10-11T22:14:15.003Z host app 123 ID47 [ex@1 a="x\"y" b="2"][id] text`,
	`<0>99 2024-02-29T23:59:59.123456+02:30 h a p m [b x="" y="ü" x="3"][a c="\\\]"] ` + "\ufeffBOM",
	"<13>1 - - - - - -", "<13>1 - - - - - - ", "<13>1 - - - - - -  two spaces",
	"<13>1 2023-02-29T00:00:00Z - - - - -",
	"<13>1 2023-12-31T00:00:00.000100-00:00 fe80::1 - -- - - line\nline\r\n",
	"<13>1 - h a p m [i][i a=\"b\"] x", "<13>1 - - - - - - \x00\xff",
	`<13>1 - - - - - [i a="` + "\xff" + `"] x`, "<13>1 - ü - - - - x",
	"<34>Jan  1 22:14:15 mymachine su[77]: 'su root' failed",
	"<34>  Feb 05 00:00:00   10.0.0.1   a b  c", "<34>Feb 29 00:00:00 host app: text",
	"<34>Feb 30 00:00:00 host app: text", "<34>Oct 11 22:14:15 app: text",
	"<34>Oct 11 22:14:15 host app:text", "<34>Oct 11 22:14:15 host app:  text",
	"<34>Oct 11 22:14:15 fe80::1 a[1]: b", "<34>Oct 11 22:14:15 word",
	"<34>Oct 11 22:14:15 host\ttab \x1b[1m", "<34>Oct 11 22:14:15 h t: a\nb\r\n",
	"<34>Oct 11 22:14:15 host app[a b]: text", "<34>Oct 11 22:14:15 [10.0.0.1] - text",
	"<34>Oct 11 22:14:15 hö text",
	"<189>237: 000104: *Jan  8 19:46:03.295: %SYS-5-CONFIG_I: Configured",
	"<34>2003-10-11T22:14:15Z h a: text", "<34>2003-10-11T22:14:15.120003+02:00 h a[1]: text",
	"<34>Mar 31 02:30:00 host app: a time that Rome skips", "<34>0 - - - - - -",
	"<34>100 - - - - - -",
}

// TestReference checks that messages become the same records as with the library go-syslog, except
// for the listed differences. It cuts each message off at each byte, and replaces, repeats and
// deletes each byte.
func TestReference(t *testing.T) {
	c := newComparison(t)
	for _, text := range referenceTexts {
		c.check(t, text)
		for i := range len(text) {
			c.check(t, text[:i])
			c.check(t, text[:i]+text[i+1:])
			c.check(t, text[:i]+text[i:i+1]+text[i:])
			for _, other := range []string{
				" ", "-", "0", "9", "a", ":", "[", "]", `"`, `\`, "=", "\n", "\x00", "\x80",
			} {
				c.check(t, text[:i]+other+text[i+1:])
			}
		}
	}
	for _, n := range []int{0, 1, 31, 32, 33, 47, 48, 49, 127, 128, 129, 254, 255, 256} {
		word := strings.Repeat("w", n)
		for _, text := range []string{
			"<1>1 - " + word + " - - - -", "<1>1 - - " + word + " - - -",
			"<1>1 - - - " + word + " - -", "<1>1 - - - - " + word + " -",
			"<1>1 - - - - - [" + word + "]",
			"<1>1 - - - - - [a " + word + `="1"]`, "<1>Jan  1 00:00:00 " + word + " text",
			"<1>Jan  1 00:00:00 h " + word + ": text",
		} {
			c.check(t, text)
		}
	}
	for i, d := range differences {
		if !c.seen[i] && !d.rare {
			t.Errorf("no text has the difference: %s", d.reason)
		}
	}
}

// FuzzReference is TestReference with any texts.
func FuzzReference(f *testing.F) {
	for _, text := range referenceTexts {
		f.Add(text)
	}
	c := newComparison(f)
	f.Fuzz(func(t *testing.T, text string) { c.check(t, text) })
}
