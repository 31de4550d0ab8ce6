package endtoend

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestIdleFiles checks that an idle process over many files uses at most 15 % of one processor to
// poll them.
func TestIdleFiles(t *testing.T) {
	s := filesScale()
	if !s.timed {
		t.Skip("skipped: it measures times alone; run `make files-short` or `make files`")
	}
	dir := t.TempDir()
	manyFiles(t, filepath.Join(dir, "in"), s.files, 10)
	least, longer := 4*time.Second, 8*time.Second
	if s.full {
		least, longer = 10*time.Second, 20*time.Second
	}
	for _, source := range []struct{ name, config string }{
		{"spool_dir", "spool_dir: { path: ./in, finished: keep }"},
		{"tail", `tail: { include: ["./in/*.log"] }`},
	} {
		t.Run(source.name, func(t *testing.T) {
			config := filesConfig(t, dir, source.name, source.config)
			once(t, config)
			undisturbed(t, func(t *testing.T) string {
				f := bounded{t: t, about: fmt.Sprintf("%s, %d files that nobody writes to",
					source.name, s.files)}
				// Both times include the start of the program.
				short, long := usedIn(t, config, least), usedIn(t, config, least+longer)
				f.most("processor time while idle", 100*(long-short).Seconds()/longer.Seconds(), 15,
					"% of one processor")
				return strings.Join(f.missed, "; ")
			})
		})
	}
}

// usedIn returns the processor time of a process that is stopped after d.
func usedIn(t *testing.T, config string, d time.Duration) time.Duration {
	t.Helper()
	cmd := exec.Command(programOf(t), "run", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pause(t.Context(), d)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("a drained run ended with %v", err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
