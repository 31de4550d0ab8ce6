//go:build unix

package exec_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestSourceDrain checks that a drain delivers the output that a command writes after SIGTERM, and
// that no process of its group survives.
func TestSourceDrain(t *testing.T) {
	t.Parallel()
	const ids = `sleep 1000 & echo $!; echo $$; wait`
	for name, c := range map[string]struct{ script, grace, last string }{
		"ends by itself": {`trap 'echo last; exit 0' TERM; ` + ids, "15s", "last"},
		"deaf":           {`trap '' TERM; ` + ids, "300ms", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, c.script, "grace: "+c.grace, false)
			pids := []string{<-p.got, <-p.got}
			p.e.Drain()
			if err := <-p.ended; err != nil {
				t.Errorf("Run = %v", err)
			}
			if got := strings.Join(p.rest(), " "); got != c.last {
				t.Errorf("after the drain arrived %q, want %q", got, c.last)
			}
			for _, text := range pids {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				if !eventually(func() bool { return dead(pid) }) {
					t.Errorf("process %d still runs", pid)
				}
			}
		})
	}
}

// dead reports whether a process has ended. A zombie counts as ended.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
