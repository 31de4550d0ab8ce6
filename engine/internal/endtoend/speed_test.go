package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRecords prints the speed of the program relative to a single-threaded loop that reads
// the same file and finds line ends with bytes.IndexByte. The two take turns, seven times each.
// With spool_dir -> parse combined -> drop, the ratio should be at least 0.2, and at least 0.08 if
// the records are also encoded as JSON lines. The program's time is that of a whole run, with start
// and checkpoint.
func BenchmarkRecords(b *testing.B) {
	dir := b.TempDir()
	file := filepath.Join(dir, "spool", "access.log")
	records := generated(b, file, 512<<20)
	for _, encode := range []string{"none", "ndjson"} {
		b.Run(map[string]string{"none": "parse", "ndjson": "json"}[encode], func(b *testing.B) {
			config := write(b, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  speed:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 50ms } }
    processors: [ { parse: { format: combined } } ]
    sink: { drop: { encode: %s } }
`, encode))
			pairs(b, "of-a-line-loop",
				func() time.Duration { return lineLoop(b, file, records) },
				func() time.Duration { return copied(b, config, records) })
		})
	}
}

// generated creates a file of log lines with at least size bytes, and returns the number of lines.
func generated(b testing.TB, path string, size int) (lines int64) {
	b.Helper()
	bin, err := program()
	if err != nil {
		b.Fatal(err)
	}
	const atOnce = 100_000
	block, err := exec.Command(bin, "generate", "--format", "combined", "--lines",
		fmt.Sprint(atOnce), "--seed", "1").Output()
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < size; n += len(block) {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
		lines += atOnce
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		b.Fatal(err)
	}
	return lines
}

// lineLoop returns the time of a loop over the lines of a file. It checks that the file has want
// lines.
func lineLoop(b *testing.B, path string, want int64) time.Duration {
	b.Helper()
	start := time.Now()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	var lines int64
	for have := 0; ; {
		n, err := f.Read(buf[have:])
		rest := buf[:have+n]
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			lines++
			rest = rest[i+1:]
		}
		have = copy(buf, rest)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if lines != want {
		b.Fatalf("%d lines, want %d", lines, want)
	}
	return time.Since(start)
}
