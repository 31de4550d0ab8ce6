package parse_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

type host struct{ counts map[string]int64 }

func newHost() *host { return &host{map[string]int64{}} }
func (h *host) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}
func (h *host) FS() vfs.FS                             { panic("parse opens no file") }
func (h *host) Go(string, func(context.Context) error) { panic("parse starts nothing") }
func (h *host) Fault(error)                            { panic("parse reports no fault") }
func (h *host) Count(name string, n int64)             { h.counts[name] += n }

// processor returns a processor with the given, valid options.
func processor(t testing.TB, o parse.Options) *parse.Processor {
	t.Helper()
	if o.OnError == "" {
		o.OnError = "dead_letter"
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	p, err := parse.New(o, newHost())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parsed returns the NDJSON of one line, or the reason of its dead letter.
func parsed(t testing.TB, o parse.Options, line string) string {
	t.Helper()
	b := streamtest.Text(line + "\n")
	if err := processor(t, o).Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	switch b.Records[0].State {
	case stream.Dead:
		return "dead: " + b.Reason(0).Error()
	case stream.Dropped:
		return "dropped"
	}
	return string(ndjson.AppendRecord(nil, b, 0))
}

func TestCombined(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"plain", `1.2.3.4 - bob [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 203023 ` +
			`"http://x/" "Moz (X; Y)"`,
			`{"host":"1.2.3.4","identity":null,"user":"bob","timestamp":"17/May/2015:10:05:03 ` +
				`+0000","method":"GET","path":"/a?b=c",` +
				`"protocol":"HTTP/1.1","status":200,"size":203023,"referrer":"http://x/","agent":"Moz (X; Y)"}`},
		{"CRLF", "h - - [t] \"GET / HTTP/1.1\" 200 1 \"-\" \"a\"\r",
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":"GET","path":"/",` +
				`"protocol":"HTTP/1.1","status":200,"size":1,` +
				`"referrer":null,"agent":"a"}`},
		{"no request", `h - - [t] "-" 408 - "-" "-"`,
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":null,"path":null,"protocol":null,"status":408,"size":null,` +
				`"referrer":null,"agent":null}`},
		{"TLS to a plain port", `h - - [t] "\x16\x03\x01\x00" 400 226 "-" "-"`,
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":null,"path":"\\x16\\x03\\x01\\x00",` +
				`"protocol":null,"status":400,` +
				`"size":226,"referrer":null,"agent":null}`},
		{"HTTP/0.9", `h - - [t] "GET /x" 200 0 "" "a"`,
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":"GET","path":"/x","protocol":null,"status":200,"size":0,` +
				`"referrer":"","agent":"a"}`},
		{"a target with spaces and quotes",
			`h - - [t] "GET /a b\"c\\d HTTP/2.0" 200 0 "r" "a\"b\\"`,
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":"GET","path":"/a b\"c\\d",` +
				`"protocol":"HTTP/2.0","status":200,` +
				`"size":0,"referrer":"r","agent":"a\"b\\"}`},
		{"nginx escapes UTF-8", `h - - [t] "GET /gr\xC3\xBCn HTTP/1.1" 200 0 "r" "a\tb\q\xzz"`,
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":"GET","path":"/grün","protocol":"HTTP/1.1","status":200,` +
				`"size":0,"referrer":"r","agent":"a\tb\\q\\xzz"}`},
		{"a user with spaces", `::1 i john doe [t] "M-SEARCH * HTTP/1.1" 007 00012 "r" "a"`,
			`{"host":"::1","identity":"i","user":"john ` +
				`doe","timestamp":"t","method":"M-SEARCH","path":"*",` +
				`"protocol":"HTTP/1.1","status":7,` +
				`"size":12,"referrer":"r","agent":"a"}`},
		{"empty", ``, "dead: parse combined: byte 1: a host and a space are missing"},
		{"one word", `x`, "dead: parse combined: byte 1: a host and a space are missing"},
		{"two words", `x - `, "dead: parse combined: byte 5: " +
			"a user and a time in brackets are missing"},
		{"no time", `h - - t "GET / HTTP/1.1" 200 1`,
			"dead: parse combined: byte 5: a user and a time in brackets are missing"},
		{"time not closed", `h - - [t "GET / HTTP/1.1" 200 1`,
			"dead: parse combined: byte 7: the time's bracket does not close"},
		{"no request", `h - - [t] GET`, "dead: parse combined: byte 10: " +
			"a request in quotes is missing"},
		{"request not closed", `h - - [t] "GET / HTTP/1.1\"`,
			"dead: parse combined: byte 11: the request's quote does not close"},
		{"no status", `h - - [t] "GET / HTTP/1.1"`,
			"dead: parse combined: byte 27: a space and a status are missing after the request"},
		{"status is text", `h - - [t] "GET / HTTP/1.1" abc 1 "-" "-"`,
			"dead: parse combined: byte 28: neither a number nor a -"},
		{"no size", `h - - [t] "GET / HTTP/1.1" 200`,
			"dead: parse combined: byte 31: a space and a size are missing after the status"},
		{"size too long", `h - - [t] "GET / HTTP/1.1" 200 1234567890123456789 "-" "-"`,
			"dead: parse combined: byte 32: a number of more than 18 digits"},
		{"common", `h - - [t] "GET / HTTP/1.1" 200 1`,
			"dead: parse combined: byte 33: a referrer and an agent are missing; " +
				"without them the format is common"},
		{"no agent", `h - - [t] "GET / HTTP/1.1" 200 1 "r"`,
			"dead: parse combined: byte 37: a referrer and an agent in quotes are missing"},
		{"referrer not closed", `h - - [t] "GET / HTTP/1.1" 200 1 "r`,
			"dead: parse combined: byte 34: the referrer's quote does not close"},
		{"agent cut off", `h - - [t] "GET / HTTP/1.1" 200 1 "r" "a b`,
			`{"host":"h","identity":null,"user":null,"timestamp":"t","method":"GET","path":"/",` +
				`"protocol":"HTTP/1.1","status":200,"size":1,` +
				`"referrer":"r","agent":"a b"}`},
		{"more fields", `h - - [t] "GET / HTTP/1.1" 200 1 "r" "a" "x"`,
			"dead: parse combined: byte 41: text after the last field; " +
				"for a format with more fields use dissect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := parsed(t, parse.Options{Format: "combined"}, c.line)
			if got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
			}
			if strings.HasPrefix(got, "{") && !json.Valid([]byte(got)) {
				t.Errorf("%s is no JSON", got)
			}
		})
	}
}

func TestCommon(t *testing.T) {
	want := `{"host":"h","identity":null,"user":null,"timestamp":"t","method":"GET","path":"/","protocol":"HTTP/1.1","status":200,"size":1}`
	if got := parsed(t, parse.Options{Format: "common"}, `h - - [t] "GET / `+
		`HTTP/1.1" 200 1`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want = "dead: parse common: byte 33: text after the last field; " +
		"for a format with more fields use dissect"
	if got := parsed(t, parse.Options{Format: "common"},
		`h - - [t] "GET / HTTP/1.1" 200 1 "r" "a"`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOnError(t *testing.T) {
	for onError, want := range map[string]string{
		"pass": `{"message":"nonsense"}`, "drop": "dropped",
		"dead_letter": "dead: parse combined: byte 1: a host and a space are missing",
	} {
		if got := parsed(t, parse.Options{Format: "combined", OnError: onError},
			"nonsense"); got != want {
			t.Errorf("on_error %s: %s, want %s", onError, got, want)
		}
	}
}

// TestBare checks that fields marked as free of quotes and backslashes contain none, and that
// typical fields are marked.
func TestBare(t *testing.T) {
	b := streamtest.Text(sample(50) + `"h - - [17/May/2015:10:05:03 +0000] "GET /\"x HTTP/1.1" ` +
		`200 1 "-" "a"` + "\n")
	if err := processor(t, parse.Options{Format: "combined"}).Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	bare := 0
	for _, f := range b.Fields {
		if f.Bare {
			bare++
		}
		if f.Bare && bytes.ContainsAny(b.Value(f), "\"\\") {
			t.Errorf("%s = %q is marked as bare", b.Names[f.Name], b.Value(f))
		}
	}
	if bare < 50*5 {
		t.Errorf("%d fields are marked as bare, want the 5 quoted ones of 50 lines", bare)
	}
}

// sample returns varied access log lines.
func sample(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `%d.%d.3.4 - - [17/May/2015:10:%02d:03 +0000] `+
			`"GET /presentations/logstash-monitorama-2013/images/kibana-search%d.png `+
			`HTTP/1.1" %d %d`+
			` "http://semicomplete.com/presentations/logstash-monitorama-2013/" `+
			`"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 `+
			`(KHTML, like Gecko) Chrome/32.0.1700.77 Safari/537.36"`+"\n",
			i%223, i%17, i%60, i, 200+i%5*100, i*37)
	}
	return s.String()
}

// reparse prepares b to be processed again, as a new batch.
func reparse(b *stream.Batch, raw int) {
	b.Records, b.Fields, b.Names, b.Data = b.Records[:0], b.Fields[:0], b.Names[:0], b.Data[:raw]
}

// allocatesNothing checks that parsing b repeatedly allocates nothing.
func allocatesNothing(t *testing.T, p *parse.Processor, b *stream.Batch) {
	t.Helper()
	raw := len(b.Data)
	run := func() {
		reparse(b, raw)
		if err := p.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("parsing %d records allocates %v times, want 0", len(b.Records), n)
	}
}

func TestCombinedAllocatesNothing(t *testing.T) {
	b := streamtest.Text(sample(1000))
	p := processor(t, parse.Options{Format: "combined"})
	allocatesNothing(t, p, b)
	if b.Kept() != 1000 || b.Records[999].NumFields != 11 {
		t.Errorf("%d kept, %d fields", b.Kept(), b.Records[999].NumFields)
	}
}

func TestShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{{Name: "a", Type: "text"},
		{Name: "n", Type: "integer"}, {Name: "z",
			Type: "text"}}}
	pattern := parse.Options{Format: "dissect", Pattern: "%{x} %{a}",
		Types: map[string]string{"x": "integer"}}
	for _, c := range []struct {
		field, onError, want string
	}{
		{"", "drop", "[x:integer a:text] false drop"},
		{"", "pass", "[x:integer a:text message:text] false pass"},
		{"z", "dead_letter", "[a:text n:integer x:integer] false dead_letter"},
		{"z", "pass", "[a:text n:integer z:text x:integer] false pass"},
		{"n", "drop", "field: n is integer, but only text can be parsed"},
		{"y", "drop", `field: there is no field "y" here`},
	} {
		o := pattern
		o.Field, o.OnError = c.field, c.onError
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		out, err := o.Shape(in.Clone())
		got := "["
		for i, f := range out.Fields {
			if i > 0 {
				got += " "
			}
			got += f.Name + ":" + string(f.Type)
		}
		got += fmt.Sprintf("] %v %s", out.Open, out.OnError)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("field %q, on_error %s: %s, want %s", c.field, c.onError, got, c.want)
		}
	}
}
