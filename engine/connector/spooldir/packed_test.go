package spooldir_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
)

// pack compresses each text as a separate member or frame, and returns them concatenated.
func pack(t testing.TB, ext string, texts ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, text := range texts {
		w := io.WriteCloser(gzip.NewWriter(&b))
		if ext == ".zst" {
			w = must(zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1)))
		}
		_, err := io.WriteString(w, text)
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// packedFixture runs a test over a directory with old files.
func packedFixture(t *testing.T, change func(*spooldir.Options), files map[string]string,
	run func(w *fixture)) {
	t.Helper()
	dir := t.TempDir()
	old := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, text := range files {
		put(t, dir, name, text)
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, dir, connectortest.FS(), func(o *spooldir.Options) {
			o.Order = "name"
			if change != nil {
				change(o)
			}
		})
		run(w)
	})
}

// TestPackedFiles checks that compressed files are read, share batches, and are finished like
// others. Their content shows that they are compressed: their names do not matter.
func TestPackedFiles(t *testing.T) {
	packedFixture(t, nil, map[string]string{
		"a.gz": pack(t, ".gz", "a1\na2\n", "a3\n"), "b": pack(t, ".zst", "b1\n", "b2"),
		"c.gz": "plain\n", "d.gz": pack(t, ".gz", ""),
	}, func(w *fixture) {
		w.finish = true
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		w.want("a.gz: a1\na2\na3\n", "b: b1\nb2\n", "c.gz: plain\n", "d.gz: ")
		w.wantFiles("a.gz.done", "b.done", "c.gz.done", "d.gz.done")
		if len(w.batches) != 2 || w.batches[1] != "" { // the last one came with io.EOF
			t.Errorf("%d batches: %q", len(w.batches), w.batches)
		}
	})
}

// TestPackedResume checks that a reader that resumes anywhere in a compressed file cuts the same
// batches as the first reader.
func TestPackedResume(t *testing.T) {
	text := string(logLines(3 << 20))
	for _, ext := range []string{".gz", ".zst"} {
		files := map[string]string{"a" + ext: pack(t, ext, text[:1<<20], text[1<<20:2_000_001], text[2_000_001:])}
		packedFixture(t, nil, files, func(w *fixture) {
			w.limits, w.finish = stream.BatchLimits{Bytes: 64 << 10, Records: 400}, false
			if err := w.once(); err != nil {
				t.Fatal(err)
			}
			if w.want("a" + ext + ": " + text); t.Failed() {
				t.Fatal("the file is not what was compressed")
			}
			all := w.batches
			for stop := 0; stop < len(all); stop += 1 + len(all)/7 {
				w.batches, w.store = nil, newStore()
				w.open(true)
				for range stop {
					if err := w.step(w.t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				w.close()
				if err := w.once(); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(all, w.batches) {
					t.Fatalf("%s: killed after %d batches, other batches came", ext, stop)
				}
			}
		})
	}
}

// TestPackedKept checks that a delivered file that is kept is not decompressed again at the next
// start.
func TestPackedKept(t *testing.T) {
	text := string(logLines(200_000))
	files := map[string]string{"a.gz": pack(t, ".gz", text)}
	packedFixture(t, func(o *spooldir.Options) { o.Finished = "keep" }, files, func(w *fixture) {
		w.finish = false
		w.open(true)
		for w.step(w.t.Context()) == nil {
		}
		for id, m := range w.store.marks {
			m.Metadata, m.Finished = w.reader.(stream.PartitionTracker).Metadata(m), true
			w.store.marks[id] = m
		}
		w.close()
		path := filepath.Join(w.dir, "a.gz")
		info := must(os.Stat(path))
		spoiled := []byte(files["a.gz"])
		for i := range spoiled {
			spoiled[i] ^= 0x55
		}
		put(t, w.dir, "a.gz", string(spoiled)) // the content is not read again
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		n := len(w.batches)
		// only the end
		if err := w.once(); err != nil || len(w.batches) != n+1 || w.batches[n] != "" {
			t.Errorf("%d more batches, %v", len(w.batches)-n, err)
		}
	})
}

// TestPackedBroken checks damaged and truncated files and decompression bombs. The data before the
// fault is delivered, and the files stay in place. The error of a run with Once names them. Other
// files are not delayed.
func TestPackedBroken(t *testing.T) {
	text := string(logLines(400_000))
	long := strings.Repeat(strings.Repeat("x", 9_999)+"\n", 7_000)
	sound := pack(t, ".gz", text)
	garbage := sound + "and what is this"
	for _, c := range []struct {
		name, data, want string
		change           func(*spooldir.Options)
	}{
		{"cut off", sound[:len(sound)/2], "the gzip data end in the middle", nil},
		{"only a header", sound[:8], "the gzip data end in the middle", nil},
		{"garbage behind", garbage, "the following bytes are not gzip", nil},
		{"not compressed", "plain\n", "the zstd data are damaged", func(o *spooldir.Options) {
			o.Compression = "zstd"
		}},
		{"a bomb", pack(t, ".zst", long), "more than max_expansion (100) allows", func(o *spooldir.Options) {
			o.MaxExpansion = 100
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"a": c.data, "b": pack(t, ".zst", "b1\n")}
			packedFixture(t, c.change, files, func(w *fixture) {
				w.finish = true
				err := w.once()
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"a"`) {
					t.Errorf("the run ended with %v, want %s", err, c.want)
				}
				w.wantFiles("a", "b.done")
				for _, got := range w.texts() {
					if body, ok := strings.CutPrefix(got, "a: "); ok &&
						!strings.HasPrefix(text, body) && !strings.HasPrefix(long, body) {
						t.Errorf("%.80q was delivered", body)
					}
				}
				if n := strings.Count(w.host.Logged(), "cannot be read to its end"); n != 1 {
					t.Errorf("it was reported %d times", n)
				}
			})
		})
	}
}

// TestPackedWritten checks that a compressed file that is still written is not read until it is
// quiet, and is read once.
func TestPackedWritten(t *testing.T) {
	packedFixture(t, nil, nil, func(w *fixture) {
		text := string(logLines(2 << 20))
		data := pack(t, ".gz", text)
		w.finish = true
		w.open(false)
		defer w.close()
		for i := range 10 {
			put(t, w.dir, "a.gz", data[:len(data)*(i+1)/10])
			now := time.Now()
			if err := os.Chtimes(filepath.Join(w.dir, "a.gz"), now, now); err != nil {
				t.Fatal(err)
			}
			w.pump(500 * time.Millisecond)
			if len(w.batches) > 0 {
				t.Fatal("it was read while it was written")
			}
		}
		w.pump(5 * time.Second)
		if want := []string{fmt.Sprintf("a.gz: %s", text)}; !slices.Equal(w.texts(), want) {
			t.Errorf("%d files came", len(w.texts()))
		}
		w.wantFiles("a.gz.done")
	})
}
