package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestOutputRotated renames the output of sink file repeatedly while the program runs, as logrotate
// does, and kills the program in between. Every line must be in exactly one of the files.
func TestOutputRotated(t *testing.T) {
	t.Parallel()
	const spooled, lines, rotateEach, killEach = 150, 200, 30, 45
	for _, create := range []bool{false, true} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out.log")
		config := write(t, filepath.Join(dir, "penstock.yaml"), `
state: ./state
pipelines:
  rotated:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 1ms } }
    sink: { file: { path: ./out.log, format: raw } }
`)
		write(t, filepath.Join(dir, "spool", "first.log"), "first\n")
		run := daemon(t, config)
		rotations := 0
		pause := time.NewTicker(20 * time.Millisecond)
		defer pause.Stop()
		for n := range spooled {
			var text bytes.Buffer
			for i := range lines {
				fmt.Fprintf(&text, "file %d line %d\n", n, i)
			}
			write(t, filepath.Join(dir, "spool", fmt.Sprintf("%04d.log", n)), text.String())
			<-pause.C
			if n%rotateEach == rotateEach-1 {
				if err := os.Rename(out, fmt.Sprintf("%s.%d", out, rotations+1)); err == nil {
					rotations++
				} else if !errors.Is(err, fs.ErrNotExist) { // the new file may not exist yet
					t.Fatal(err)
				}
				if create {
					write(t, out, "")
				}
			}
			if n%killEach == killEach-1 {
				_ = run.Process.Kill()
				_ = run.Wait()
				run = daemon(t, config)
			}
		}
		_ = run.Process.Kill()
		_ = run.Wait()
		once(t, config)
		seen := map[string]int{}
		for n := 1; n <= rotations; n++ {
			countLines(seen, read(t, fmt.Sprintf("%s.%d", out, n)))
		}
		countLines(seen, read(t, out))
		lost, repeated := 1-min(1, seen["first"]), 0
		for n := range spooled {
			for i := range lines {
				switch times := seen[fmt.Sprintf("file %d line %d", n, i)]; {
				case times == 0:
					lost++
				case times > 1:
					repeated++
				}
			}
		}
		if lost+repeated > 0 || len(seen) != spooled*lines+1 || rotations < 3 {
			t.Errorf("create %v: %d rotations: %d lines lost, %d repeated, %d different ones",
				create, rotations, lost, repeated, len(seen))
		}
	}
}

// TestOutputAccepted checks that a replaced output stops the route with an error. The error names
// the command that accepts the new output, and this command must work.
func TestOutputAccepted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "penstock.yaml"), `
state: ./state
pipelines:
  accepted:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 1ms } }
    sink: { file: { path: ./out.log, format: raw } }
`)
	write(t, filepath.Join(dir, "spool", "a.log"), "a\n")
	once(t, config)
	out := filepath.Join(dir, "out.log")
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	write(t, out, "another\n")
	write(t, filepath.Join(dir, "spool", "b.log"), "b\n")
	if _, err := tryOnce(t, config); err == nil ||
		!bytes.Contains([]byte(err.Error()), []byte("--accept-output")) {
		t.Fatalf("a replaced output: %v", err)
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	set := exec.Command(bin, "checkpoint", "set", config, "--route", "accepted/main",
		"--accept-output")
	if text, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	once(t, config)
	if got := string(read(t, out)); got != "another\nb\n" {
		t.Errorf("the output holds %q", got)
	}
}

// daemon starts the program until it is killed.
func daemon(t *testing.T, config string) *exec.Cmd {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func countLines(seen map[string]int, text []byte) {
	for line := range bytes.Lines(text) {
		seen[string(bytes.TrimSuffix(line, []byte("\n")))]++
	}
}
