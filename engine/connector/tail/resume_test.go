package tail_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/engine/kit/framing"
	"github.com/penstock-io/penstock/stream"
)

var (
	resumeFramings = []func(*framing.Options){
		func(*framing.Options) {},
		func(o *framing.Options) { o.By = "delimiter"; o.Delimiter = "||" },
		func(o *framing.Options) { o.By = "delimiter"; o.Delimiter = "\x00" },
		func(o *framing.Options) { o.By = "csv" },
		func(o *framing.Options) { o.By = "json" },
		func(o *framing.Options) { o.By = "multiline"; o.Start = "^[0-9]" },
	}
	resumeEncodings    = []string{"utf-8", "utf-16le", "utf-16be", "utf-16", "latin-1", "windows-1252"}
	resumeCompressions = []string{"", ".gz", ".zst"}
)

// appendPacked appends data to a file. If the extension is .gz or .zst, the data is a compressed
// member of its own.
func appendPacked(t *testing.T, path string, data []byte) {
	t.Helper()
	var packed bytes.Buffer
	var z io.WriteCloser
	switch filepath.Ext(path) {
	case ".gz":
		z = gzip.NewWriter(&packed)
	case ".zst":
		w, err := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		z = w
	}
	if z == nil {
		packed.Write(data)
	} else {
		if _, err := z.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(packed.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// FuzzResume checks files of any bytes. Each file is written in any number of parts, with a kill
// between two parts. For each framing, encoding and compression, the records equal those of one
// pass over the whole file.
func FuzzResume(f *testing.F) {
	data := []byte("1 one\n  more\r\n2 \xe4\xf0||[1,{\"a\":2}] \"x\ny\"\n3\x00\n")
	for framing := range resumeFramings {
		for encoding := range resumeEncodings {
			for packed := range resumeCompressions {
				if (framing+encoding+packed)%5 == 0 {
					f.Add(uint8(framing), uint8(encoding), uint8(packed), data, []byte{3, 1, 9, 7})
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, framed, encoded, packed uint8, data, cuts []byte) {
		if len(data) > 1<<12 || len(cuts) > 6 {
			return
		}
		change := func(o *tail.Options) {
			o.Include, o.Exclude, o.MaxRecord = []string{"*.log*"}, nil, 256
			resumeFramings[int(framed)%len(resumeFramings)](&o.Framing)
			o.Encoding, o.DecodeError = resumeEncodings[int(encoded)%len(resumeEncodings)], "replace"
		}
		name := "a.log" + resumeCompressions[int(packed)%len(resumeCompressions)]
		read := func(cuts []byte) (lines []string) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, dir, change)
				w.limits, w.lag = stream.BatchLimits{Bytes: 64}, 100*time.Millisecond
				if err := w.options().Validate(); err != nil {
					t.Fatal(err)
				}
				w.start(false)
				defer w.kill()
				rest := data
				for _, n := range cuts {
					piece := rest[:min(len(rest), int(n))]
					rest = rest[len(piece):]
					appendPacked(t, filepath.Join(dir, name), piece)
					w.pump(1500 * time.Millisecond)
					w.kill()
					w.start(false)
				}
				appendPacked(t, filepath.Join(dir, name), rest)
				w.pump(20 * time.Second)
				if lines = w.exact; w.failed != nil {
					t.Fatal(w.failed)
				}
			})
			return lines
		}
		if whole, resumed := read(nil), read(cuts); !slices.Equal(whole, resumed) {
			t.Errorf("%q cut at %v: %q, in one pass %q", data, cuts, resumed, whole)
		}
	})
}
