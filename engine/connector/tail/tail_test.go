package tail_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// bubble runs a test in fake time over a real folder.
func bubble(t *testing.T, change func(*tail.Options), run func(t *testing.T, w *fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, dir, change)
		defer w.kill()
		run(t, w)
	})
}

func TestSourceConforms(t *testing.T) {
	dir := t.TempDir()
	var want [][]string
	for f := range 4 {
		var lines []string
		for n := range 40 + 13*f {
			lines = append(lines, fmt.Sprintf("file %d line %d %s", f, n, strings.Repeat("x", n%17)))
		}
		want = append(want, lines)
		write(t, filepath.Join(dir, fmt.Sprintf("%d.log", f)), strings.Join(lines, "\n")+"\n")
	}
	connectortest.Source(t, connectortest.SourceCase{
		Want: want,
		New: func(t *testing.T, h *streamtest.Host) stream.Source {
			o := tail.Source().Options().(*tail.Options)
			o.Include, o.PollMin, o.PollMax = []string{filepath.Join(dir, "*.log")},
				time.Millisecond, 10*time.Millisecond
			s, err := tail.Source().New(o, h)
			if err != nil {
				t.Fatal(err)
			}
			return s.(stream.Source)
		},
	})
}

// TestPartialLine checks that an unterminated line waits. After partial_wait it becomes a record,
// and text added later is another record.
func TestPartialLine(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := filepath.Join(w.dir, "a.log")
		write(t, path, "one\ntw")
		w.start(false)
		w.pump(time.Hour)
		w.want("one")
		write(t, path, "one\ntwo\n")
		w.pump(3 * time.Second)
		w.want("one", "two")
	})
	change := func(o *tail.Options) { o.PartialWait = 5 * time.Second }
	bubble(t, change, func(t *testing.T, w *fixture) {
		path := filepath.Join(w.dir, "a.log")
		write(t, path, "one\ntw")
		w.start(false)
		w.pump(4 * time.Second)
		w.want("one")
		w.pump(4 * time.Second)
		w.want("one", "tw")
		write(t, path, "one\ntwo\nthree\n")
		w.pump(8 * time.Second)
		w.want("one", "tw", "o", "three")
	})
}

// TestStartAtEnd checks that start: end begins after the last whole line of existing files, and
// reads new files from the beginning.
func TestStartAtEnd(t *testing.T) {
	bubble(t, func(o *tail.Options) { o.Start = "end" }, func(t *testing.T, w *fixture) {
		write(t, filepath.Join(w.dir, "a.log"), "old\nhalf")
		write(t, filepath.Join(w.dir, "b.log"), "old\n")
		write(t, filepath.Join(w.dir, "empty.log"), "")
		w.start(false)
		w.pump(3 * time.Second)
		w.want()
		w.kill()
		write(t, filepath.Join(w.dir, "a.log"), "old\nhalf a line\n")
		write(t, filepath.Join(w.dir, "empty.log"), "first\n")
		write(t, filepath.Join(w.dir, "new.log"), "new\n")
		w.start(false)
		w.pump(3 * time.Second)
		w.want("half a line", "first", "new")
	})
}

// TestStartAtEndDecoded checks start: end for encodings with units of one and of two bytes, and for
// a framing that joins several lines into one record. Only the line that is written after the start
// must be read.
func TestStartAtEndDecoded(t *testing.T) {
	for _, tt := range []struct{ name, was, line, want string }{
		{"latin-1", "one\nlast\n", "new\n", "new"},
		{"utf-8", "one\ntwo\n\n", "new\n", "new"},
		{"utf-16le", "o\x00\n\x00", "n\x00\n\x00", "n"},
		{"cri", "2016-10-06T00:17:09Z stdout F last\n", "2016-10-06T00:17:10Z stdout F new\n",
			"2016-10-06T00:17:10Z stdout F new"},
	} {
		set := func(o *tail.Options) {
			if o.Start = "end"; tt.name == "cri" {
				o.Framing.By, o.Framing.Preset = "multiline", "cri"
			} else {
				o.Encoding, o.DecodeError = tt.name, "replace"
			}
		}
		bubble(t, set, func(t *testing.T, w *fixture) {
			path := filepath.Join(w.dir, "a.log")
			write(t, path, tt.was)
			w.start(false)
			w.pump(10 * time.Second)
			w.want()
			write(t, path, tt.was+tt.line)
			w.pump(10 * time.Second)
			w.want(tt.want)
		})
	}
}

// TestKinds checks that anything but a regular file is refused with a reason, that symlinks are
// followed if configured, and that each file is read once.
func TestKinds(t *testing.T) {
	for _, how := range []string{"refuse", "follow"} {
		bubble(t, func(o *tail.Options) { o.Symlinks = how }, func(t *testing.T, w *fixture) {
			write(t, filepath.Join(w.dir, "a.log"), "one\n")
			outside := filepath.Join(t.TempDir(), "real")
			write(t, outside, "linked\n")
			for _, l := range [][2]string{
				{outside, "l.log"}, {"l.log", "ll.log"}, {"nowhere", "n.log"}, {"loop.log", "loop.log"}, {".", "d.log"},
			} {
				if err := os.Symlink(l[0], filepath.Join(w.dir, l[1])); err != nil {
					t.Skip("this system makes no symlinks: ", err)
				}
			}
			if err := os.Link(filepath.Join(w.dir, "a.log"), filepath.Join(w.dir, "h.log")); err != nil {
				t.Fatal(err)
			}
			w.start(false)
			w.pump(3 * time.Second)
			want := []string{"one"}
			if how == "follow" {
				want = append(want, "linked")
			} else if n := strings.Count(w.host.Logged(), "set symlinks: follow to read its target"); n != 5 {
				t.Errorf("%d symlinks were refused, want 5", n)
			}
			w.want(want...)
			if !strings.Contains(w.host.Logged(), "it is a hard link to") {
				t.Error("the log does not name the hard link")
			}
		})
	}
}

// TestDeletedWaitsForTheLastBatch checks that Deleted does not return a file while its last span is
// in a batch that the engine has not received yet. The engine drops the stored progress of the
// partitions that Deleted returns, as soon as none of their spans is being processed.
func TestDeletedWaitsForTheLastBatch(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := filepath.Join(w.dir, "a.log")
		write(t, path, "one\nno end")
		w.start(false)
		w.pump(3 * time.Second)
		w.want("one")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		b := stream.NewBatch(stream.BatchLimits{})
		if err := w.reader.Read(t.Context(), b); err != nil || len(b.Spans) != 1 || !b.Spans[0].Last {
			t.Fatalf("Read: %v, %+v; want the end of the file", err, b.Spans)
		}
		deleted := w.reader.(stream.PartitionTracker).Deleted
		if ids := deleted(); len(ids) != 0 {
			t.Errorf("%q may be forgotten while its last batch is on its way", ids)
		}
		if err := w.deliver(b); err != nil {
			t.Fatal(err)
		}
		w.pump(3 * time.Second)
		if len(w.saved) != 0 {
			t.Errorf("%d marks are left", len(w.saved))
		}
	})
}

// TestCopyInTheMaking checks a copy that is incomplete when it is first seen, and then grows to its
// full length. Reading must continue at the position reached in the original. The bytes by which
// the copy was recognized may end before that, in the middle of a record.
func TestCopyInTheMaking(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		text := strings.Repeat("a line that is longer than a few bytes\n", 100) + "the last\n"
		path := filepath.Join(w.dir, "a.log")
		write(t, path, text)
		w.start(false)
		w.pump(3 * time.Second)
		write(t, filepath.Join(w.dir, "a.1.log"), text[:1500])
		w.pump(time.Second)
		write(t, filepath.Join(w.dir, "a.1.log"), text)
		write(t, path, "new\n")
		w.pump(30 * time.Second)
		w.want(append(strings.Split(strings.TrimSuffix(text, "\n"), "\n"), "new")...)
	})
}

// TestMeta checks that meta adds fields with the origin of a record behind its text.
func TestMeta(t *testing.T) {
	bubble(t, func(o *tail.Options) {
		o.Meta = origin.Options{File: "file", Offset: "at", Path: "{app}-{day}.log"}
	}, func(t *testing.T, w *fixture) {
		path := filepath.Join(w.dir, "shop-21.log")
		write(t, path, "one\ntwo\n")
		w.start(false)
		b := stream.NewBatch(stream.BatchLimits{})
		if err := w.reader.Read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for i := range b.Records {
			for _, f := range b.FieldsOf(i) {
				fmt.Fprintf(&got, "%s=%s ", b.Names[f.Name], b.Value(f))
			}
		}
		label := filepath.ToSlash(path)
		want := "message=one file=" + label + " at=0 app=shop day=21 message=two file=" + label +
			" at=4 app=shop day=21 "
		if got.String() != want {
			t.Errorf("fields %q, want %q", got.String(), want)
		}
	})
}

// TestMarkInTwoWrites checks that the byte order of a UTF-16 file is not derived from the first half
// of its byte order mark.
func TestMarkInTwoWrites(t *testing.T) {
	encoding := func(o *tail.Options) { o.Encoding = "utf-16" }
	bubble(t, encoding, func(t *testing.T, w *fixture) {
		path := filepath.Join(w.dir, "a.log")
		write(t, path, "\xff")
		w.start(false)
		w.pump(time.Second)
		write(t, path, "\xff\xfea\x00\n\x00b\x00\n\x00")
		w.pump(30 * time.Second)
		w.want("a", "b")
	})
}
