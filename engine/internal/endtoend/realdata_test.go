package endtoend

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRealLogsEach sends each real log through spool_dir to a raw file. The output must be
// identical to the log, except for a missing last line end.
func TestRealLogsEach(t *testing.T) {
	t.Parallel()
	for _, log := range realLogs(t) {
		t.Run(filepath.Base(log), func(t *testing.T) {
			dir := t.TempDir()
			text := read(t, log)
			write(t, filepath.Join(dir, "spool", "input.log"), string(text))
			res := once(t, write(t, filepath.Join(dir, "penstock.yaml"),
				rawToFile("rename", "256KiB")))
			got := read(t, filepath.Join(dir, "out.log"))
			if !bytes.Equal(got, completeLines(text)) {
				t.Errorf("the output has %d bytes, the input %d; they differ", len(got), len(text))
			}
			p := res.Pipelines[0]
			if want := int64(bytes.Count(completeLines(text), []byte("\n"))); p.Delivered != want ||
				p.ReadBytes != int64(len(text)) {
				t.Errorf("delivered %d records of %d bytes, want %d of %d", p.Delivered,
					p.ReadBytes, want, len(text))
			}
			if _, err := os.Stat(filepath.Join(dir, "spool", "input.log.done")); err != nil {
				t.Errorf("the finished file was not renamed: %v", err)
			}
		})
	}
}

// TestRealLogsTogether sends all real logs together in small batches. Every line must arrive once,
// in order for each file. A second run must send nothing.
func TestRealLogsTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want [][]byte
	for _, log := range realLogs(t) {
		text := read(t, log)
		write(t, filepath.Join(dir, "spool", filepath.Base(log)), string(text))
		want = append(want, completeLines(text))
	}
	config := write(t, filepath.Join(dir, "penstock.yaml"), rawToFile("keep", "16KiB"))
	once(t, config)
	if err := interleaved(read(t, filepath.Join(dir, "out.log")), want); err != nil {
		t.Error(err)
	}
	if again := once(t, config).Pipelines[0]; again.ReadRecords != 0 {
		t.Errorf("the second run read %d records again", again.ReadRecords)
	}
	write(t, filepath.Join(dir, "spool", "late.log"), "only this\n")
	if third := once(t, config).Pipelines[0]; third.Delivered != 1 {
		t.Errorf("a new file of one line: %d delivered", third.Delivered)
	}
}

func rawToFile(finished, batch string) string {
	return fmt.Sprintf(`
state: ./state
pipelines:
  real:
    source: { spool_dir: { path: ./spool, include: ["*.log"], finished: %s, quiet_period: 50ms } }
    sink: { file: { path: ./out.log, format: raw } }
    batch: { bytes: %s }
`, finished, batch)
}

// interleaved returns an error unless out is a merge of the files' lines, which means that it has
// each line once, and the lines of each file in their order.
func interleaved(out []byte, files [][]byte) error {
	rest := slices.Clone(files)
	last := 0
	for n, line := range bytes.SplitAfter(out, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		from := -1
		// first try the file of the previous line, because batches are contiguous
		for k := range rest {
			if i := (last + k) % len(rest); bytes.HasPrefix(rest[i], line) {
				from = i
				break
			}
		}
		if from < 0 {
			return fmt.Errorf("line %d of the output is the next line of no file: %.80q", n+1, line)
		}
		rest[from], last = rest[from][len(line):], from
	}
	for i := range rest {
		if len(rest[i]) > 0 {
			return fmt.Errorf("file %d: %d bytes never arrived", i, len(rest[i]))
		}
	}
	return nil
}
