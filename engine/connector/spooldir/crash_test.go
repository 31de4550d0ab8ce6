package spooldir_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
)

// bubble runs a test in fake time over a real directory.
func bubble(t *testing.T, change func(*spooldir.Options), run func(t *testing.T, w *fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { run(t, newFixture(t, dir, connectortest.FS(), change)) })
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func numberedLines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d of a writer that takes its time\n", i)
	}
	return b.String()
}

// TestWriterPauses checks a file with a writer that pauses and then continues. All lines must be
// delivered, and the log must report that the file has grown. In this case, Apache Flume reads
// 2,000 of 4,000 lines, renames the file, and reports nothing.
func TestWriterPauses(t *testing.T) {
	for _, finished := range []string{"rename", "delete", "move", "keep"} {
		for _, told := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, finished %v", finished, told), func(t *testing.T) {
				moved := t.TempDir()
				bubble(t, func(o *spooldir.Options) {
					if o.Finished = finished; finished == "move" {
						o.MoveTo = moved
					}
				}, func(t *testing.T, w *fixture) {
					w.finish = told
					f, err := os.Create(filepath.Join(w.dir, "a.log"))
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					fmt.Fprint(f, numberedLines(0, 2000))
					w.open(false)
					defer w.close()
					w.pump(3 * time.Second)
					if got := len(w.pending); told && got > 0 || !told && got != 1 {
						t.Fatalf("after 3 s %d files wait to be finished", got)
					}
					w.finish = true
					fmt.Fprint(f, numberedLines(2000, 4000))
					w.pump(5 * time.Second)
					name := "a.log"
					if told && finished == "rename" {
						name = "a.log.done"
					}
					w.want(name + ": " + numberedLines(0, 4000))
					if len(w.store.order) != 1 {
						t.Errorf("%d partitions, want 1", len(w.store.order))
					}
					if len(w.pending) > 0 {
						t.Errorf("%v still waits to be finished: %v", w.pending, w.refused)
					}
					if n := w.host.Counted("files_grown"); n != 1 {
						t.Errorf("files_grown is %d, want 1", n)
					}
					if !strings.Contains(w.host.Logged(),
						"has grown after it counted as finished") {
						t.Error("the log does not say that the file has grown")
					}
				})
			})
		}
	}
}

// TestFinishRefusesGrownFile checks a file that grows after it was read to its end, and before
// Finish. The file must not be finished until all of it is settled.
func TestFinishRefusesGrownFile(t *testing.T) {
	bubble(t, func(o *spooldir.Options) { o.Finished = "delete" }, func(t *testing.T, w *fixture) {
		w.finish = false
		path := put(t, w.dir, "a.log", "one\n")
		w.open(false)
		defer w.close()
		w.pump(2 * time.Second)
		appendTo(t, path, "two\n")
		w.finish = true
		w.finishAll()
		if len(w.refused) != 1 || !strings.Contains(w.refused[0].Error(),
			"it has 8 bytes, 4 were read") {
			t.Fatalf("Finish of a file that has grown: %v", w.refused)
		}
		w.wantFiles("a.log")
		w.pump(3 * time.Second)
		w.want("a.log: one\ntwo\n")
		w.wantFiles()
	})
}

// TestChangedWhileRead checks a file that is appended to, removed, renamed or replaced while it is
// read. All of its data must be delivered, and then that of the new file. Apache Flume's source
// stops in these cases.
func TestChangedWhileRead(t *testing.T) {
	text := numberedLines(0, 3000)
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, path string)
		want   []string
		count  string
	}{
		{"a line is appended", func(t *testing.T, path string) {
			appendTo(t, path, "more\n")
		}, []string{"a.log: " + text + "more\n"}, ""},
		{"it is removed", func(t *testing.T, path string) {
			os.Remove(path)
		}, []string{"a.log: " + text}, "files_orphaned"},
		{"it is renamed within", func(t *testing.T, path string) {
			os.Rename(path, path+"x")
		}, []string{"a.logx: " + text}, ""},
		{"it is replaced", func(t *testing.T, path string) {
			write(t, path+".tmp", "new\n")
			os.Rename(path+".tmp", path)
		}, []string{"a.log: " + text, "a.log: new\n"}, "files_orphaned"},
		{"it is removed and made again", func(t *testing.T, path string) {
			os.Remove(path)
			write(t, path, "new\n")
		}, []string{"a.log: " + text, "a.log: new\n"}, "files_orphaned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, w *fixture) {
				path := put(t, w.dir, "a.log", text)
				w.limits = stream.BatchLimits{Bytes: 4096}
				w.open(false)
				defer w.close()
				if err := w.step(t.Context()); err != nil {
					t.Fatal(err)
				}
				tt.change(t, path)
				w.pump(5 * time.Second)
				w.want(tt.want...)
				if tt.count != "" && w.host.Counted(tt.count) != 1 {
					t.Errorf("%s is %d, want 1", tt.count, w.host.Counted(tt.count))
				}
				if len(w.pending) > 0 {
					t.Errorf("%v waits to be finished: %v", w.pending, w.refused)
				}
			})
		})
	}
}

// TestNameUsedAgain checks a name that is reused, for another inode or the same one. Each new
// content must be delivered. In this case, Apache Flume stops after every restart.
func TestNameUsedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := put(t, w.dir, "a.log", "first\n")
		w.open(false)
		w.pump(3 * time.Second)
		write(t, path, "second\n")
		w.pump(3 * time.Second)
		w.wantFiles("a.log.done", "a.log.done.1")
		w.close()
		// The same inode under the old name, with other content.
		if err := os.Rename(path+".done", path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "third, on the inode of the first\n")
		w.src = w.host.source(options(w.dir, nil))
		w.open(false)
		w.pump(3 * time.Second)
		// And once more, with the same head, seen while it runs.
		if err := os.Rename(path+".done", path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "x\n")
		w.pump(3 * time.Second)
		w.close()
		w.want("a.log: first\n", "a.log: second\n", "a.log: third, on the inode of the first\n",
			"a.log: x\n")
		w.wantFiles("a.log.done", "a.log.done.1")
	})
}

// TestPutBack checks that an unchanged file that is renamed back to its old name is finished again,
// but not delivered again.
func TestPutBack(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := put(t, w.dir, "a.log", "first\n")
		for range 3 {
			w.open(false)
			w.pump(3 * time.Second)
			w.close()
			w.wantFiles("a.log.done")
			if err := os.Rename(path+".done", path); err != nil {
				t.Fatal(err)
			}
			w.src = w.host.source(options(w.dir, nil))
		}
		w.want("a.log: first\n")
	})
}

// TestRewrittenInPlace checks files that are rewritten in place after they were read. The new
// content is shorter or longer than the old one, or has the same length. It must be delivered as a
// new file.
func TestRewrittenInPlace(t *testing.T) {
	text := numberedLines(0, 100)
	for name, again := range map[string]string{
		"shorter":             "new\n",
		"longer":              strings.Repeat("another line\n", 1000),
		"longer, equal head":  text[:2000] + strings.Repeat("another line\n", 1000),
		"as long":             strings.Replace(text, "line 0", "LINE 0", 1),
		"emptied, then grown": "",
	} {
		for _, finished := range []string{"keep", "rename"} {
			t.Run(name+", "+finished, func(t *testing.T) {
				change := func(o *spooldir.Options) { o.Finished = finished }
				bubble(t, change, func(t *testing.T, w *fixture) {
					w.finish = finished == "keep" // otherwise sealed, but not yet renamed
					path := put(t, w.dir, "a.log", text)
					w.open(false)
					defer w.close()
					w.pump(3 * time.Second)
					write(t, path, again)
					w.pump(300 * time.Millisecond)
					if again == "" {
						again = "grown again\n"
						w.pump(3 * time.Second)
						write(t, path, again)
					}
					w.finish = true
					w.pump(4 * time.Second)
					if got := w.texts(); len(got) < 2 || got[0] != "a.log: "+text ||
						got[len(got)-1] != "a.log: "+again {
						t.Errorf("delivered %.200q, want the old text and %.60q", got, again)
					}
					if n := w.host.Counted("files_replaced"); n != 1 {
						t.Errorf("files_replaced is %d, want 1", n)
					}
					if len(w.pending) > 0 {
						t.Errorf("%v waits to be finished: %v", w.pending, w.refused)
					}
				})
			})
		}
	}
}

// TestAnyBytes checks that all bytes are delivered unchanged: invalid UTF-8, NUL bytes, CRLF, and a
// last record without a line end. At invalid UTF-8, Apache Flume stops, also after every restart.
func TestAnyBytes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		text := "crlf\r\n\x00nul\n\xff\xfe bad \xc3\x28\n" + string(bytes.Repeat(all, 30)) + "\rend"
		put(t, w.dir, "a.log", text)
		put(t, w.dir, "b.log", "")
		put(t, w.dir, "c.log", "\n\n")
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		w.want("a.log: "+text+"\n", "b.log: ", "c.log: \n\n")
		w.wantFiles("a.log.done", "b.log.done", "c.log.done")
	})
}

// TestLongRecords checks a line longer than the limit. Depending on the option long_record, it is
// cut into several records, or becomes a dead letter. Apache Flume cuts it without reporting that.
func TestLongRecords(t *testing.T) {
	long := strings.Repeat("0123456789", 500)
	for _, how := range []string{"cut", "dead_letter"} {
		change := func(o *spooldir.Options) { o.MaxRecord, o.LongRecord = 2048, how }
		bubble(t, change, func(t *testing.T, w *fixture) {
			put(t, w.dir, "a.log", "before\n"+long+"\nafter\n"+long)
			w.limits = stream.BatchLimits{Bytes: 1000}
			if err := w.once(); err != nil {
				t.Fatal(err)
			}
			pieces := long[:2048] + "\n" + long[2048:4096] + "\n" + long[4096:] + "\n"
			if how == "dead_letter" {
				pieces = long[:2048] + "\n"
				want := `"a.log" at offset 7: the record has 5000 bytes, more than max_record (2048); its first 2048 bytes are kept here`
				if len(w.dead) != 2 || w.dead[0] != want {
					t.Errorf("dead letters because of %q, want %q", w.dead, want)
				}
			}
			w.want("a.log: before\n" + pieces + "after\n" + pieces)
		})
	}
}
