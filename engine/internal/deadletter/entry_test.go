package deadletter

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream"
)

func written(t testing.TB, letters ...Letter) []byte {
	t.Helper()
	var buf bytes.Buffer
	to := json.NewEncoder(&buf)
	for i := range letters {
		if err := writeLine(to, &letters[i], Options{Pipeline: "p", Route: "main"},
			time.Unix(int64(1000+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	return buf.Bytes()
}

// TestEntries checks that letters are read back byte for byte, and that other lines and an
// unterminated line are skipped.
func TestEntries(t *testing.T) {
	text := written(t, Letter{ID: "a@1", Reason: "no", Record: []byte("x\xff\x00y")},
		Letter{ID: "a@2", Record: []byte(`"quoted"`)})
	text = append([]byte("not JSON\n{\"version\":2,\"id\":\"later\",\"record\":\"x\"}\n\n"+
		"{\"version\":1,\"id\":\"lost its record\"}\n"+
		"{\"version\":1,\"id\":\"damaged\",\"record\":\"\xc3\"}\n"), text...)
	text = append(text, `{"version":1,"id":"half`...)
	all := NewEntries(bytes.NewReader(text))
	for _, want := range []string{"x\xff\x00y", `"quoted"`} {
		e, err := all.Next()
		if err != nil || string(e.Text()) != want {
			t.Fatalf("%v, %q, want %q", err, e.Text(), want)
		}
	}
	if _, err := all.Next(); err != io.EOF || all.Skipped != 5 {
		t.Errorf("at the end %v, %d lines passed over", err, all.Skipped)
	}
}

func TestFilter(t *testing.T) {
	at := time.Unix(1000, 0)
	e := &Entry{ID: "a@1", Reason: "POST http://h/: 422 Unprocessable", Time: at}
	for _, c := range []struct {
		filter Filter
		want   bool
	}{
		{Filter{}, true},
		{Filter{Reason: "unprocess"}, true},
		{Filter{Reason: "413"}, false},
		{Filter{Since: at}, true},
		{Filter{Since: at.Add(1)}, false},
		{Filter{Until: at}, false},
		{Filter{Until: at.Add(1)}, true},
		{Filter{IDs: []string{"b", "a@1"}}, true},
		{Filter{IDs: []string{"b"}}, false},
	} {
		if got := c.filter.Takes(e); got != c.want {
			t.Errorf("%+v takes it: %v", c.filter, got)
		}
	}
}

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"90m": now.Add(-90 * time.Minute), "2026-11-20": now.Add(-36 * time.Hour),
		"2026-11-21T13:00:00+01:00": now, "2026-11-21 12:00:00": now,
	} {
		if got, err := ParseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-5m", "2026-13-01"} {
		if got, err := ParseTime(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestSource checks that each letter becomes a record with a partition of its own. The source must
// skip letters that are settled, duplicate or excluded by the filter.
func TestSource(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(osfs.New(), dir, Options{Pipeline: "p", Route: "main"})
	if err != nil {
		t.Fatal(err)
	}
	letters := []Letter{
		{ID: "a@1", Reason: "no", Record: []byte("one")},
		{ID: "a@2", Reason: "never", Record: []byte("two")},
		{ID: "a@3", Reason: "no", Record: []byte("")},
		{ID: "a@4", Reason: "no", Record: []byte("four")},
	}
	if err := s.Append(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	path := s.Path()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	source := Source{FS: osfs.New(), Path: path, Filter: Filter{Reason: "no"}}
	r, err := source.Open(t.Context(), stream.OpenOptions{Resume: func(id string) (stream.Mark,
		bool) {
		return stream.Mark{Watermark: stream.Position{Num: 1}}, id == PartitionOf("a@4")
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := stream.NewBatch(stream.BatchLimits{})
	if err := r.Read(t.Context(), b); err != io.EOF {
		t.Fatalf("Read = %v", err)
	}
	var got []string
	for i := range b.Records {
		got = append(got, string(b.AppendRecordID(nil, i))+" "+string(b.Text(i)))
	}
	want := []string{PartitionOf("a@1") + "@1 one", PartitionOf("a@3") + "@1 "}
	if strings.Join(got, "|") != strings.Join(want, "|") || b.Origins != 2 ||
		b.RawBytes()-int64(b.Added) != 3 {
		t.Errorf("read %q (%d origins, %d bytes), want %q", got, b.Origins, b.RawBytes(), want)
	}
	if raw, ok := b.Whole(); !ok || string(raw) != "one\n\n" {
		t.Errorf("whole is %q, %v", raw, ok)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzEntries checks that any file is read to its end, and that every letter found has an id.
func FuzzEntries(f *testing.F) {
	f.Add(written(f, Letter{ID: "a@1", Record: []byte("x")}))
	f.Add([]byte("{}\n[]\nnull\n{\"version\":1,\"id\":1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, n := NewEntries(bytes.NewReader(text)), 0
		for {
			e, err := all.Next()
			if err == io.EOF {
				break
			}
			if err != nil || e.ID == "" || e.Record == nil && e.RecordBase64 == nil {
				t.Fatal(err, e)
			}
			n++
		}
		if n+all.Skipped != bytes.Count(text, []byte("\n")) {
			t.Errorf("%d letters and %d other lines of %d", n, all.Skipped,
				bytes.Count(text, []byte("\n")))
		}
	})
}
