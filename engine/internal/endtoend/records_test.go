package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// figures are the values in which a table of requests must agree with its log.
type figures struct {
	records int
	bytes   int64
	status  map[string]int
	hosts   int
}

// combinedLine splits an access log line independently of the parser, with one expression.
var combinedLine = regexp.MustCompile(`^(\S+) .*\] "[^"]*" (\d{3}) (\d+|-) "[^"]*" "[^"]*"?$`)

// figuresOfLog computes the figures from the log.
func figuresOfLog(t *testing.T, log []byte) figures {
	t.Helper()
	f := figures{status: map[string]int{}}
	hosts := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		m := combinedLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("the test's expression does not match %q", line)
		}
		f.records++
		f.status[m[2]]++
		hosts[m[1]] = true
		if m[3] != "-" {
			n, err := strconv.ParseInt(m[3], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			f.bytes += n
		}
	}
	f.hosts = len(hosts)
	return f
}

// request is one request as written by the file sink.
type request struct {
	Host, Timestamp, Method, Path, Protocol string
	Status                                  json.Number
	Size                                    *int64
	Referrer, Agent                         *string
}

func figuresOfOutput(t *testing.T, out []byte) figures {
	t.Helper()
	f := figures{status: map[string]int{}}
	hosts := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(out))
	for d.More() {
		var r request
		if err := d.Decode(&r); err != nil {
			t.Fatalf("record %d: %v", f.records, err)
		}
		if r.Timestamp == "" || r.Method == "" || !strings.HasPrefix(r.Protocol, "HTTP/") {
			t.Fatalf("record %d lacks a field: %+v", f.records, r)
		}
		f.records++
		f.status[r.Status.String()]++
		hosts[r.Host] = true
		if r.Size != nil {
			f.bytes += *r.Size
		}
	}
	f.hosts = len(hosts)
	return f
}

// realLog returns a real access log of 10,000 lines.
func realLog(t *testing.T) []byte {
	t.Helper()
	dir := os.Getenv("PENSTOCK_DATA")
	if dir == "" {
		t.Skip("skipped: PENSTOCK_DATA names no folder of real logs")
	}
	return read(t, filepath.Join(dir, "apache_logs.log"))
}

// TestRealAccessLog checks that all lines of a real access log parse, and that the output agrees
// with the log.
func TestRealAccessLog(t *testing.T) {
	t.Parallel()
	log := realLog(t)
	want := figuresOfLog(t, log)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "access.log"), string(log))
	res := once(t, write(t, filepath.Join(dir, "penstock.yaml"),
		records("parse: {format: combined}")))
	p := res.Pipelines[0]
	if p.Dead != 0 || p.Dropped != 0 || p.Delivered != int64(want.records) ||
		want.records != 10_000 {
		t.Errorf("%+v, want all of %d delivered", p, want.records)
	}
	got := figuresOfOutput(t, read(t, filepath.Join(dir, "out.ndjson")))
	if got.records != want.records || got.bytes != want.bytes || got.hosts != want.hosts ||
		!maps.Equal(got.status, want.status) {
		t.Errorf("the output has %+v, the log %+v", got, want)
	}
}

// TestRealAccessLogFiltered compares filtered and changed records with figures computed from the
// log.
func TestRealAccessLogFiltered(t *testing.T) {
	t.Parallel()
	log := realLog(t)
	all := figuresOfLog(t, log)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "access.log"), string(log))
	res := once(t, write(t, filepath.Join(dir, "penstock.yaml"), records(
		"parse: {format: combined}", "where: status >= 400",
		"set: {at: meta.offset, file: meta.file, line: meta.id}",
		"drop: [identity, user, agent]", "rename: {status: code}")))
	want := 0
	for status, n := range all.status {
		if status >= "400" {
			want += n
		}
	}
	if p := res.Pipelines[0]; p.Delivered != int64(want) || p.Dropped != int64(all.records-want) ||
		p.Dead != 0 {
		t.Errorf("%+v, want %d delivered, the rest dropped", p, want)
	}
	for line := range bytes.Lines(read(t, filepath.Join(dir, "out.ndjson"))) {
		var r struct {
			Host, File, Line string
			At, Code         int64
			Agent            *string
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		text, _, _ := bytes.Cut(log[r.At:], []byte("\n"))
		end := fmt.Sprintf("@%d", int(r.At)+len(text)+1)
		if r.Code < 400 || r.Agent != nil || r.File != "access.log" ||
			!strings.HasSuffix(r.Line, end) ||
			!bytes.HasPrefix(text, []byte(r.Host+" ")) ||
			!bytes.Contains(text, fmt.Appendf(nil, `" %d `, r.Code)) {
			t.Fatalf("%s is not what stands at its offset: %s", line, text)
		}
	}
}

// TestJSONArrivesUnchanged sends deep and wide objects, a record of 10 MiB, and numbers that
// float64 cannot represent. The output must have the same bytes as the input.
func TestJSONArrivesUnchanged(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&in, `{"z":%d.10,"a":9223372036854775808,"m":1e400,"deep":%s%s,"t":"grün `+
			`\"%d\"","f":0.1,"n":null,"ok":true`,
			i, strings.Repeat(`{"b":[`, i), strings.Repeat(`]}`, i), i)
		for k := range i {
			fmt.Fprintf(&in, `,"w%03d":-0.0%d`, (k*7)%300, k)
		}
		in.WriteString("}\n")
	}
	long := `{"s":"` + strings.Repeat("0123456789", 1<<20) + `"}` + "\n"
	in.WriteString(strings.Replace(long, `"deep":,`, ``, 1))
	want := strings.ReplaceAll(in.String(), `"deep":,`, ``)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "in.json"), want)
	config := strings.Replace(records("parse: {format: json}"), "quiet_period: 50ms",
		"quiet_period: 50ms, max_record: 16MiB", 1)
	res := once(t, write(t, filepath.Join(dir, "penstock.yaml"), config))
	if p := res.Pipelines[0]; p.Dead != 0 || p.Delivered != 301 {
		t.Errorf("%+v", p)
	}
	got := strings.SplitAfter(string(read(t, filepath.Join(dir, "out.ndjson"))), "\n")
	for i, line := range strings.SplitAfter(want, "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("record %d came out changed: %.300s", i, line)
		}
	}
}

// TestUnparsedRecords checks each on_error policy, and the contents of the dead letters.
func TestUnparsedRecords(t *testing.T) {
	t.Parallel()
	for onError, want := range map[string]routeResult{
		"dead_letter": {Delivered: 95, Dead: 5}, "drop": {Delivered: 95, Dropped: 5},
		"pass": {Delivered: 100},
	} {
		dir := t.TempDir()
		var in strings.Builder
		for i := range 100 {
			if i%20 == 7 {
				fmt.Fprintf(&in, "no JSON %d\r\n", i)
				continue
			}
			fmt.Fprintf(&in, "{\"i\":%d}\r\n", i)
		}
		write(t, filepath.Join(dir, "spool", "in.json"), in.String())
		res := once(t, write(t, filepath.Join(dir, "penstock.yaml"),
			records("parse: {format: json, on_error: "+onError+"}")))
		p := res.Pipelines[0]
		if p.Delivered != want.Delivered || p.Dead != want.Dead || p.Dropped != want.Dropped {
			t.Errorf("on_error %s: %+v", onError, p)
		}
		letters, err := filepath.Glob(filepath.Join(dir, "state", "dead", "*", "*"))
		more, err2 := filepath.Glob(filepath.Join(dir, "state", "dead", "*"))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		var text []byte
		for _, path := range append(letters, more...) {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				text = append(text, read(t, path)...)
			}
		}
		const reason = `"reason":"parse json: no JSON value begins with this character",` +
			`"detail":"byte 1"`
		if n := bytes.Count(text, []byte(reason)); int64(n) != want.Dead {
			t.Errorf("on_error %s: %d dead letters give the reason, want %d: %.500s", onError, n,
				want.Dead, text)
		}
		out := string(read(t, filepath.Join(dir, "out.ndjson")))
		if passed := strings.Count(out,
			`{"message":"no JSON `); (onError == "pass") != (passed == 5) {
			t.Errorf("on_error %s: %d passed", onError, passed)
		}
	}
}

// TestWrongParserIsStopped checks a format that matches no line of a large file. The route must
// stop before a hundredth of the file is dead-lettered.
func TestWrongParserIsStopped(t *testing.T) {
	t.Parallel()
	const lines = 500_000
	dir := t.TempDir()
	line := `10.0.0.1 - - [05/Jan/2026:06:00:00 +0000] "GET / HTTP/1.1" 200 1234 "-" "agent of ` +
		`some length, as they are"` + "\n"
	write(t, filepath.Join(dir, "spool", "access.log"), strings.Repeat(line, lines))
	config := write(t, filepath.Join(dir, "penstock.yaml"), records("parse: {format: json}"))
	res, err := tryOnce(t, config)
	if err == nil || res.OK || !strings.Contains(res.Error, "stopped by the guard") {
		t.Fatalf("%+v, %v", res, err)
	}
	if p := res.Pipelines[0]; p.Dead > p.ReadRecords || p.Dead > lines/100 || p.Delivered != 0 {
		t.Errorf("%+v, want at most %d dead", p, lines/100)
	}
	letters := filepath.Join(dir, "state", "dead", "records.main.ndjson")
	if n := bytes.Count(read(t, letters), []byte("\n")); n == 0 || n > lines/100 {
		t.Errorf("%d dead letters of %d records, want at most a hundredth", n, lines)
	}
	write(t, config, records("parse: {format: combined}"))
	res = once(t, config) // corrected: it continues after the dead letters
	if p := res.Pipelines[0]; p.Dead != 0 ||
		p.Delivered+int64(bytes.Count(read(t, letters), []byte("\n"))) < lines {
		t.Errorf("after the mending %+v", p)
	}
}

// records returns a config that sends a spool through processors to NDJSON.
func records(processors ...string) string {
	items := "      - " + strings.Join(processors, "\n      - ")
	return `
state: ./state
pipelines:
  records:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 50ms } }
    processors:
` + items + `
    sink: { file: { path: ./out.ndjson } }
    batch: { bytes: 64KiB }
`
}
