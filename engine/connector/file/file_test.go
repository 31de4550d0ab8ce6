package file_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// lines returns a batch of n records of width bytes each, line ends included.
func lines(n, width int) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{Bytes: n * width, Records: n})
	for i := range n {
		b.Data = append(append(b.Data, bytes.Repeat([]byte{'a' + byte(i%26)}, width-1)...), '\n')
	}
	return spanned(b, n)
}

// spanned sets the span of b, whose data holds n records.
func spanned(b *stream.Batch, n int) *stream.Batch {
	b.Origins = n
	b.Spans = []stream.Span{{
		Part:  &stream.Partition{ID: "p", Name: "p"},
		Range: stream.Range{To: stream.Position{Num: int64(len(b.Data))}},
		Bytes: len(b.Data),
	}}
	return b
}

func text(s string) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = append(b.Data, s...)
	return spanned(b, max(1, strings.Count(s, "\n")))
}

// open opens a sink and returns it with its lane.
func open(t testing.TB, h *streamtest.Host, o file.Options,
	place string) (*file.Sink, stream.Lane) {
	t.Helper()
	s, lane, err := tryOpen(t, h, o, place)
	if err != nil {
		t.Fatal(err)
	}
	return s, lane
}

func tryOpen(t testing.TB, h *streamtest.Host, o file.Options,
	place string) (*file.Sink, stream.Lane, error) {
	t.Helper()
	s, err := file.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	var lane stream.Lane
	err = s.Open(t.Context(), stream.SinkOptions{
		Pipeline: "test", Route: "main", ResumeToken: place,
		Lanes: func(all []stream.Lane) { lane = all[0] },
	})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, lane, err
}

// writer delivers batches one at a time, each as a run of its own.
type writer struct {
	lane stream.Lane
	run  uint32
}

func (w *writer) deliver(b *stream.Batch) (place string, err error) {
	w.run++
	report, err := w.lane.Worker.Deliver(context.Background(),
		stream.Attempt{Value: b, ID: uint64(w.run), Number: 1, Run: w.run})
	return report.ResumeToken, err
}

func rawAt(path string) file.Options {
	return file.Options{Path: path, Format: file.Raw, Fsync: file.SyncAck}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRawBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	_, lane := open(t, connectortest.NewHost(t), rawAt(path), "")
	w := writer{lane: lane}
	changed := text("keep\r\ndrop\n\xff\x00\n")
	changed.Split()
	changed.Drop(1)
	for _, b := range []*stream.Batch{text("plain\r\n\n"), changed, text("no line end"),
		lines(3, 100_000)} {
		if _, err := w.deliver(b); err != nil {
			t.Fatal(err)
		}
	}
	whole, _ := lines(3, 100_000).Whole()
	if got, want := read(t, path), "plain\r\n\nkeep\r\n\xff\x00\nno line end\n"+string(whole); got != want {
		t.Errorf("the file holds %.80q (%d bytes), want %.80q (%d bytes)", got, len(got), want,
			len(want))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

// TestFoundFile checks that the sink keeps the contents of an existing file if there is no
// checkpoint. It then opens the sink again with the token that the first start returned. The sink
// must remove the records that it has written since that start.
func TestFoundFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, []byte("found, no line end"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h := connectortest.NewHost(t)
		s, lane := open(t, h, rawAt(path), "")
		start := s.StartToken()
		w := writer{lane: lane}
		if _, err := w.deliver(text("one\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = h.Stop(), s.Close()
		h = connectortest.NewHost(t)
		if s, _ = open(t, h, rawAt(path), start); s.StartToken() != start {
			t.Errorf("StartToken %q after Open at %q", s.StartToken(), start)
		}
		_, _ = h.Stop(), s.Close()
		if got := read(t, path); got != "found, no line end\n" {
			t.Errorf("the file holds %q, want what was found, with a line end", got)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	h := connectortest.NewHost(t)
	s, lane := open(t, h, rawAt(path), "")
	w := writer{lane: lane}
	place, err := w.deliver(text("0123456789\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = tryOpen(t, connectortest.NewHost(t), rawAt(path), "")
	if err == nil || !strings.Contains(err.Error(), "another route or process") {
		t.Errorf("a second sink on the same file: %v", err)
	}
	_, _ = h.Stop(), s.Close()
	refuse := func(name, place, want string) {
		t.Helper()
		_, _, err := tryOpen(t, connectortest.NewHost(t), rawAt(path), place)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: Open gives %v, want an error with %q", name, err, want)
		}
	}
	refuse("a resume token of a later version", "9 what ever",
		"this version cannot read; restore the file")
	if err := os.Truncate(path, 5); err != nil {
		t.Fatal(err)
	}
	refuse("a file that was cut", place,
		"it has 5 bytes, but its checkpoint records 11 delivered bytes")
	if err := errors.Join(os.Rename(path, path+".1"), os.Truncate(path+".1", 5)); err != nil {
		t.Fatal(err)
	}
	refuse("a file that is gone", place,
		"it does not exist, but its checkpoint records 11 bytes; restore the file")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse("another file", place, "but its checkpoint records inode")
	if err := errors.Join(os.Remove(path), os.Symlink(path+".1", path)); err != nil {
		t.Fatal(err)
	}
	refuse("a symlink", "", "not a regular file")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	refuse("a directory", "", "not a regular file")
}

// TestReplacedWhileWritten checks that the sink asks to be reopened when another program renames,
// removes, replaces or truncates the file. A renamed file must then hold exactly the acknowledged
// records.
func TestReplacedWhileWritten(t *testing.T) {
	t.Parallel()
	for _, fsync := range []string{"ack", "interval"} {
		for name, do := range map[string]func(path string) error{
			"renamed": func(path string) error { return os.Rename(path, path+".1") },
			"renamed, and a new one is there": func(path string) error {
				return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
			},
			"removed":              os.Remove,
			"copied and truncated": func(path string) error { return os.Truncate(path, 0) },
		} {
			path := filepath.Join(t.TempDir(), "out")
			h := connectortest.NewHost(t)
			o := rawAt(path)
			o.Fsync = fsync
			s, lane := open(t, h, o, "")
			w := writer{lane: lane}
			answered := ""
			for range 20 {
				if err := w.count(&answered); err != nil {
					t.Fatal(err)
				}
			}
			if err := do(path); err != nil {
				t.Fatal(err)
			}
			for w.count(&answered) == nil { // until the change is noticed
				if len(answered) > 100<<20 {
					t.Fatalf("%s: nobody has noticed", name)
				}
			}
			reopen, ok := errors.AsType[*stream.ReopenError](h.Stop())
			if !ok || reopen.ResumeToken != "" ||
				!strings.Contains(reopen.Error(), "another program") {
				t.Fatalf("%s: the sink ended with %v", name, reopen)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if old, err := os.ReadFile(path + ".1"); err == nil && string(old) != answered {
				t.Errorf("%s, fsync %s: the old file holds %d bytes, %d were answered", name, fsync,
					len(old), len(answered))
			}
			if now, err := os.ReadFile(path); err == nil && strings.ContainsRune(string(now), 0) {
				t.Errorf("%s: there is a hole in the file", name)
			}
			h2 := connectortest.NewHost(t)
			s2, lane2 := open(t, h2, o, reopen.ResumeToken)
			w2, more := writer{lane: lane2}, ""
			if err := w2.count(&more); err != nil {
				t.Errorf("%s: after it was opened again: %v", name, err)
			}
			_, _ = h2.Stop(), s2.Close()
			if now := read(t, path); name != "copied and truncated" && now != more {
				t.Errorf("%s: the new file holds %q, want %q", name, now, more)
			}
		}
	}
}

// TestRenamedBetweenRuns checks a file that is renamed between two runs. The sink must truncate it
// to the length in the checkpoint, and then begin a new file. If the checkpoint is from before the
// first delivery, the renamed file must become empty.
func TestRenamedBetweenRuns(t *testing.T) {
	for _, settled := range []string{"settled\n", ""} {
		path := filepath.Join(t.TempDir(), "out")
		h := connectortest.NewHost(t)
		o := rawAt(path)
		o.Mode = "0666" // the umask would clear bits
		s, lane := open(t, h, o, "")
		w := writer{lane: lane}
		place, err := s.StartToken(), error(nil)
		if settled != "" {
			place, err = w.deliver(text(settled))
		}
		if err == nil {
			_, err = w.deliver(text("not in the checkpoint\n"))
		}
		_, _ = h.Stop(), s.Close()
		if err := errors.Join(err, os.Rename(path, path+".1")); err != nil {
			t.Fatal(err)
		}
		h = connectortest.NewHost(t)
		s, lane = open(t, h, o, place)
		w = writer{lane: lane}
		if _, err := w.deliver(text("not in the checkpoint\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = h.Stop(), s.Close()
		if old, now := read(t, path+".1"), read(t, path); old != settled ||
			now != "not in the checkpoint\n" {
			t.Errorf("the files hold %q and %q, want %q in the first", old, now, settled)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
			t.Errorf("mode %v, %v, want 0666", info.Mode(), err)
		}
	}
}

// count delivers one record and, on success, appends it to want.
func (w *writer) count(want *string) error {
	line := fmt.Sprintf("record %d\n", w.run)
	_, err := w.deliver(text(line))
	if err == nil {
		*want += line
	}
	return err
}

// TestAllocations checks that the allocations of a batch do not depend on its number of records.
func TestAllocations(t *testing.T) {
	o := rawAt(filepath.Join(t.TempDir(), "out"))
	o.Fsync = file.SyncInterval
	_, lane := open(t, connectortest.NewHost(t), o, "")
	w := writer{lane: lane}
	small, large := lines(1, 10), lines(2000, 10)
	cost := func(b *stream.Batch) float64 {
		return testing.AllocsPerRun(200, func() {
			if _, err := w.deliver(b); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := cost(small), cost(large); few > 8 || many > few+1 {
		t.Errorf("a batch of one record costs %v allocations, of 2,000 records %v; "+
			"want at most 8, and no more for more", few, many)
	}
}

// TestGroups checks that deliveries that wait during an fsync share the next one. While one fsync
// runs, all other deliveries are written. So two consecutive fsyncs answer all deliveries that are
// made at the same time.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := vfstest.New()
		h := streamtest.NewHostOn(t, files)
		s, lane := open(t, h, rawAt(memPath), "")
		files.Watch(func(c vfstest.Call) {
			if c.Op == vfstest.OpSync {
				time.Sleep(time.Millisecond) // virtual time: until all others wait
			}
		})
		const batches, atOnce = 640, 32
		room := make(chan struct{}, atOnce)
		var wg sync.WaitGroup
		for n := range uint32(batches) {
			room <- struct{}{}
			wg.Go(func() {
				defer func() { <-room }()
				if _, err := lane.Worker.Deliver(t.Context(),
					stream.Attempt{Value: lines(100, 100), Index: n}); err != nil {
					t.Errorf("Deliver %d: %v", n, err)
				}
			})
		}
		wg.Wait()
		if syncs := h.Counted("syncs"); syncs > 2*batches/atOnce+1 {
			t.Errorf("%d batches, %d at once, cost %d syncs", batches, atOnce, syncs)
		}
		_, _ = h.Stop(), s.Close()
	})
}
