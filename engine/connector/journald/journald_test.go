package journald

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestMain lets the test binary act as a journalctl that reads a file of JSON lines.
func TestMain(m *testing.M) {
	if journal := os.Getenv("FAKE_JOURNAL"); journal != "" {
		os.Exit(fakeJournalctl(journal, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fakeJournalctl imitates journalctl. It prints the line of the file journal that has the cursor in
// args, and the lines after it. With --lines=1, it prints the last line. With --follow, it waits
// for new lines, and prints only those of the current boot. It ends with status 1 after an entry
// with the MESSAGE "die", unless this entry has the cursor. Without --follow, it also ends before
// an entry that contains the constant unreadable.
func fakeJournalctl(journal string, args []string) int {
	cursor, follow := "", slices.Contains(args, "--follow")
	for _, arg := range args {
		if text, ok := strings.CutPrefix(arg, "--cursor="); ok {
			cursor = text
		}
	}
	f, err := os.Open(journal)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if slices.Contains(args, "--lines=1") {
		text, err := io.ReadAll(f)
		if err != nil {
			return 3
		}
		fmt.Print(string(text[bytes.LastIndexByte(bytes.TrimSpace(text), '\n')+1:]))
		return 0
	}
	in := bufio.NewReader(f)
	passed, rest := cursor == "", ""
	for {
		line, err := in.ReadString('\n')
		rest += line
		if err != nil {
			if !follow {
				return 0
			}
			<-time.After(5 * time.Millisecond)
			continue
		}
		if !follow && strings.Contains(rest, unreadable) {
			fmt.Fprintln(os.Stderr, "Bad message")
			return 1
		}
		known := strings.Contains(rest, `"__CURSOR":"`+cursor+`"`)
		passed = passed || known
		if passed && (!follow || !strings.Contains(rest, earlier)) {
			fmt.Print(rest)
			if !known && strings.Contains(rest, `"MESSAGE":"die"`) {
				return 1
			}
		}
		rest = ""
	}
}

// The constant earlier is in the message of each entry of an earlier boot. The constant unreadable
// is the message of such an entry that journalctl cannot read.
const earlier, unreadable = "earlier boot", "unreadable of an earlier boot"

// line returns an entry in the format of journalctl.
func line(n int, micros int64, message string) string {
	text, err := json.Marshal(map[string]any{
		"__CURSOR":             fmt.Sprintf("s=5f;i=%x;b=0a;m=1;t=2;x=3", n),
		"__REALTIME_TIMESTAMP": fmt.Sprint(micros), "__MONOTONIC_TIMESTAMP": "1",
		"MESSAGE": message, "PRIORITY": "4", "_PID": "77",
	})
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

func options(t *testing.T, journal string) Options {
	t.Helper()
	t.Setenv("FAKE_JOURNAL", journal)
	o := *DefaultOptions()
	o.Command, o.Env = []string{os.Args[0]}, []string{"PATH", "FAKE_JOURNAL", "GORACE"}
	return o
}

// journalOf writes a journal with a clock that stops and is set back.
func journalOf(t *testing.T, n int) (path string, want []string) {
	t.Helper()
	var text strings.Builder
	for i := range n {
		message := fmt.Sprintf("message %d %s", i, strings.Repeat("x", i%50))
		at := int64(1_000_000 + 10*i)
		if i%7 == 0 {
			at = 1_000_000
		}
		text.WriteString(line(i, at, message))
		e, err := parse([]byte(line(i, at, message)), stream.Position{})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(e.record))
	}
	path = filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, want
}

func TestSuite(t *testing.T) {
	path, want := journalOf(t, 60)
	o := options(t, path)
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t *testing.T, h *streamtest.Host) stream.Source {
			s, err := New(o, h)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Want:   [][]string{want},
		Limits: stream.BatchLimits{Bytes: 1000, Records: 5},
	})
}

// TestFollow checks that entries that are added later are read once. If journalctl ends, the
// reader returns its error after the entries, and the next reader resumes after them.
func TestFollow(t *testing.T) {
	path, _ := journalOf(t, 3)
	j, err := New(options(t, path), streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, message := range []string{"die", "die", "last"} {
		if _, err := io.WriteString(f, line(10+i, int64(5_000_000+i), message)); err != nil {
			t.Fatal(err)
		}
	}
	at := stream.Position{}
	for _, want := range [][]string{
		{"message 0", "message 1", "message 2", "die"}, {"die"}, {"last"},
	} {
		r := open(t, j, stream.Mark{Watermark: at})
		if got := messages(t, r, len(want)); !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		if want[len(want)-1] == "die" {
			b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 20, Records: 100})
			err := r.Read(t.Context(), b)
			if _, ok := errors.AsType[*child.ExitError](err); !ok {
				t.Errorf("journalctl has died, and Read returns %v", err)
			}
		}
		at = r.(*reader).at
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// open opens a reader of a route with this progress.
func open(t *testing.T, j *Journal, mark stream.Mark) stream.Reader {
	t.Helper()
	r, err := j.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Resume: func(string) (stream.Mark, bool) { return mark, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLatest checks that a route with `start: latest` skips the entries that exist at its first
// start, and that it stores their end as its position. So if the route fails before it has settled
// an entry, its next run reads the entries after this position.
func TestLatest(t *testing.T) {
	path, _ := journalOf(t, 3)
	o := options(t, path)
	o.Start = Latest
	j, err := New(o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	first := open(t, j, stream.Mark{})
	b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 20, Records: 100})
	if err := first.Read(t.Context(), b); err != nil || len(b.Spans) != 1 || b.Origins != 0 {
		t.Fatalf("read %d records and %d spans, %v; want a span without records", b.Origins,
			len(b.Spans), err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.WriteString(f, line(10, 5_000_000, "new")); err != nil {
		t.Fatal(err)
	}
	if got := messages(t, first, 1); !slices.Equal(got, []string{"new"}) {
		t.Errorf("the first reader reads %q", got)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second := open(t, j, stream.Mark{Watermark: b.Spans[0].To})
	defer second.Close()
	if got := messages(t, second, 1); !slices.Equal(got, []string{"new"}) {
		t.Errorf("the second reader reads %q", got)
	}
}

// TestReadCanceled checks a Read with a canceled context just after Open. The race detector must
// not find a race with the goroutine that runs journalctl.
func TestReadCanceled(t *testing.T) {
	path, _ := journalOf(t, 3)
	j, err := New(options(t, path), streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	canceled := errors.New("canceled")
	cancel(canceled)
	for range 20 {
		r := open(t, j, stream.Mark{})
		b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 20, Records: 1000})
		if err := r.Read(ctx, b); !errors.Is(err, canceled) {
			t.Errorf("Read = %v, want %v", err, canceled)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestUnreadableEntry checks that a route reads the entries of the current boot although
// journalctl fails at an entry of an earlier boot, and that the loss is reported once.
func TestUnreadableEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	var text strings.Builder
	for i, message := range []string{earlier + " 0", unreadable, "this boot"} {
		text.WriteString(line(i, int64(1_000_000+i), message))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	host := streamtest.NewHost(t)
	j, err := New(options(t, path), host)
	if err != nil {
		t.Fatal(err)
	}
	first := open(t, j, stream.Mark{})
	if got := messages(t, first, 1); !slices.Equal(got, []string{earlier + " 0"}) {
		t.Errorf("the first reader reads %q", got)
	}
	b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 20, Records: 100})
	err = first.Read(t.Context(), b)
	if err == nil || !strings.Contains(err.Error(), "Bad message") {
		t.Errorf("the first reader returns %v, want the error of journalctl", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second := open(t, j, stream.Mark{Watermark: first.(*reader).at})
	defer second.Close()
	if got := messages(t, second, 1); !slices.Equal(got, []string{"this boot"}) {
		t.Errorf("the second reader reads %q", got)
	}
	if faults := host.Faults(); len(faults) != 1 ||
		!strings.Contains(faults[0].Error(), "entries of earlier boots may be missing") {
		t.Errorf("reported: %v", faults)
	}
}

// TestSkippedOnce checks that a skipped entry counts once for a route, although several runs of
// journalctl print it, and that another route counts it, too.
func TestSkippedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	long := strings.Repeat("x", 2000)
	text := line(0, 1, "first") + line(1, 2, long) + line(2, 3, long) + "{\n" + line(3, 4, "last")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t, path)
	o.MaxRecord = 1024
	j, err := New(o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{"p/a", "p/b"} {
		var skipped atomic.Int64
		for range 3 {
			r, err := j.Open(t.Context(), stream.OpenOptions{
				Route:  route,
				Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
				Count: func(name string, n int64) {
					if name == "entries_skipped" {
						skipped.Add(n)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			messages(t, r, 2)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := skipped.Load(); n != 3 {
			t.Errorf("route %s has skipped %d entries, want 3", route, n)
		}
	}
}

// messages reads at least n entries, and returns their messages without the letters x and the
// spaces at their ends, with which the tests lengthen messages.
func messages(t *testing.T, r stream.Reader, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 20, Records: 100})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := r.Read(ctx, b)
		cancel()
		for i := range b.Records { // an error may come with the last records
			var record struct{ Message string }
			if err := json.Unmarshal(b.Text(i), &record); err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.TrimRight(record.Message, "x "))
		}
		if err != nil && len(got) < n {
			t.Fatalf("after %q: %v", got, err)
		}
	}
	return got
}

// TestEarlierBoots checks that the entries of earlier boots are read, from the first one or from a
// position, although journalctl omits them when it follows the journal.
func TestEarlierBoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	var text strings.Builder
	all := []string{earlier + " 0", earlier + " 1", earlier + " 2", "this boot"}
	for i, message := range all {
		text.WriteString(line(i, int64(1_000_000+i), message))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := parse([]byte(line(0, 1_000_000, earlier+" 0")), stream.Position{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mark stream.Mark
		want []string
	}{
		{"first", stream.Mark{}, all},
		{"position", stream.Mark{Watermark: first.at}, all[1:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, err := New(options(t, path), streamtest.NewHost(t))
			if err != nil {
				t.Fatal(err)
			}
			r, err := j.Open(t.Context(), stream.OpenOptions{
				Route:  streamtest.Route,
				Resume: func(string) (stream.Mark, bool) { return c.mark, true },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got := messages(t, r, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("read %q, want %q", got, c.want)
			}
		})
	}
}

// TestSkipped checks that a finite run fails if it has skipped an entry, and delivers the others.
func TestSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	text := line(0, 1, strings.Repeat("x", 2000)) + "{\n" + line(1, 2, "short")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t, path)
	o.MaxRecord = 1024
	host := streamtest.NewHost(t)
	j, err := New(o, host)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Once: true,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := stream.NewBatch(stream.BatchLimits{Bytes: 1000, Records: 10})
	if err := r.Read(t.Context(), b); err != nil && !errors.Is(err, io.EOF) || len(b.Records) != 1 {
		t.Errorf("Read = %v with %d records, want 1", err, len(b.Records))
	}
	if n, faults := host.Counted("entries_skipped"), host.Faults(); n != 2 || len(faults) != 2 {
		t.Errorf("%d entries are skipped with the errors %v, want 2 with 2", n, faults)
	}
}

// TestMissing checks that a finite run without journalctl fails with an error that names the
// program.
func TestMissing(t *testing.T) {
	o := *DefaultOptions()
	o.Command = []string{filepath.Join(t.TempDir(), "journalctl")}
	j, err := New(o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Once: true,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.Read(t.Context(), stream.NewBatch(stream.BatchLimits{Bytes: 1000, Records: 10}))
	if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "journalctl") {
		t.Errorf("Read = %v", err)
	}
}

func TestParse(t *testing.T) {
	const start = `{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1700000000123456",`
	const stamp = `{"timestamp":"2023-11-14T22:13:20.123456Z"`
	for in, want := range map[string]string{
		start + `"MESSAGE":"hello","PRIORITY":"3","SYSLOG_FACILITY":"3","_HOSTNAME":"h","_PID":"7",` +
			`"_SYSTEMD_UNIT":"x.service","SYSLOG_IDENTIFIER":"x","_UID":"0","CODE_LINE":"5"}`: stamp +
			`,"hostname":"h","unit":"x.service","app_name":"x","proc_id":"7","message":"hello",` +
			`"facility":"daemon","facility_code":3,"severity":"err","severity_code":3,` +
			`"journal":{"CODE_LINE":"5","_UID":"0"}}`,
		start + `"MESSAGE":[104,105,255]}`:         stamp + `,"message":"hi` + "\ufffd" + `"}`,
		start + `"MESSAGE":["one",[116,119,111]]}`: stamp + `,"message":"one\ntwo"}`,
		start + `"MESSAGE":null,"PRIORITY":"x"}`:   stamp + `,"message":"","journal":{"PRIORITY":"x"}}`,
		start + `"PRIORITY":"9","__SEQNUM":"5"}`:   stamp + `,"severity_code":9}`,
		start + `"MESSAGE":"b\n\"c\"","A\nB":"x"}`: stamp + `,"message":"b\n\"c\"","journal":{"A\nB":"x"}}`,
	} {
		e, err := parse([]byte(in), stream.Position{})
		record := string(e.record)
		if err != nil || !sameJSON(record, want) || strings.Contains(record, "\n") {
			t.Errorf("parse(%s)\n= %s, %v\nwant %s", in, e.record, err, want)
		}
		if e.at != (stream.Position{Num: 1700000000123456, Key: "c"}) {
			t.Errorf("position %v", e.at)
		}
	}
	for in, want := range map[string]string{
		"x":                "not a JSON object",
		`{"MESSAGE":"x"}`:  "no __CURSOR",
		`{"__CURSOR":"c"}`: `__REALTIME_TIMESTAMP is ""`,
		start[:13] + strings.Repeat("c", 600) + start[14:] + `"x":"y"}`: "cursor has 60",
	} {
		_, err := parse([]byte(in), stream.Position{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse(%.40s) = %v, want %q", in, err, want)
		}
	}
}

// sameJSON reports whether two texts are the same JSON, with members in the same order.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(line(1, 5, "x")))
	f.Add([]byte(`{"__CURSOR":"c","__REALTIME_TIMESTAMP":"5","MESSAGE":[1,[2],"x",null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := stream.Position{Num: 7, Key: "k"}
		e, err := parse(text, before)
		if err != nil {
			return
		}
		if before.Compare(e.at) >= 0 {
			t.Errorf("position %v is not behind %v", e.at, before)
		}
		if !json.Valid(e.record) || strings.Contains(string(e.record), "\n") {
			t.Errorf("%q is no JSON on one line", e.record)
		}
	})
}

func TestArguments(t *testing.T) {
	o := DefaultOptions()
	o.Units, o.Priority, o.Match = []string{"nginx.service"}, "warning", []string{"_UID=0"}
	got := strings.Join(o.arguments("c", true), " ")
	want := "--output=json --all --no-pager --quiet --unit=nginx.service --priority=warning " +
		"--cursor=c --follow --no-tail _UID=0"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	o.Directory = "/j"
	got = strings.Join(o.arguments("c", true), " ")
	if !strings.Contains(got, "--directory=/j") || !strings.Contains(got, "--follow --no-tail --merge") {
		t.Error(got)
	}
	o.Directory, o.Start = "", Latest
	got = strings.Join(o.arguments("", true), " ")
	if !strings.Contains(got, "--lines=0 --follow _UID=0") {
		t.Error(got)
	}
	got = strings.Join(o.arguments("", false), " ")
	if !strings.HasSuffix(got, " --quiet --lines=1") {
		t.Error(got)
	}
}
