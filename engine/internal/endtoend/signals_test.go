package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fullPipe returns the write end of a pipe that is full and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	for _, size := range []int{1 << 20, 1} { // the second write fills the rest of the last page
		if err := w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, size)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the pipe is not full: %v", err)
		}
	}
	return w
}

// process is a run of the program that a test sends signals to.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan error
}

// launch starts a command that ends with the test at the latest.
func launch(t *testing.T, stderr *os.File, name string, args ...string) *process {
	t.Helper()
	d := &process{t: t, cmd: exec.Command(name, args...), ended: make(chan error, 1)}
	d.cmd.Stderr = stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	return d
}

func (d *process) signal(s os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// exit returns the exit code, or fails the test if the program has not ended within a bound.
func (d *process) exit(within time.Duration) int {
	d.t.Helper()
	select {
	case <-d.ended:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		d.t.Fatalf("the program has not ended within %v", within)
		return 0
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// spoolJob writes a job from a spool directory with one file to a sink, and returns its config.
func spoolJob(t *testing.T, dir, sink, more string) string {
	t.Helper()
	write(t, filepath.Join(dir, "spool", "a.log"), strings.Repeat("a line\n", 5000))
	return write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  job:
    source: { spool_dir: { path: ./spool, finished: keep, settle: 10ms } }
    sink: { %s }
%s`, sink, more))
}

// TestStuckStderr runs the program with a stderr that nobody reads, or that is closed: everything
// is delivered, the exit code is true, and one signal drains it.
func TestStuckStderr(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	closed := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		t.Cleanup(func() { w.Close() })
		return w
	}
	for name, pipe := range map[string]func(*testing.T) *os.File{"full": fullPipe, "closed": closed} {
		for _, once := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, once %v", name, once), func(t *testing.T) {
				dir := t.TempDir()
				config := spoolJob(t, dir, "file: { path: ./out.txt, format: raw }", "")
				args := []string{"run", config}
				if once {
					args = append(args, "--once")
				}
				d := launch(t, pipe(t), bin, args...)
				if !once {
					eventually(t, "everything is delivered", func() bool { return sizeOf(filepath.Join(dir, "out.txt")) == 5000*7 })
					d.signal(syscall.SIGTERM)
				}
				if code := d.exit(20 * time.Second); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if out := read(t, filepath.Join(dir, "out.txt")); !bytes.Equal(out, read(t, filepath.Join(dir, "spool", "a.log"))) {
					t.Errorf("%d bytes arrived", len(out))
				}
			})
		}
	}
}

// TestSecondSignal stops a run whose receiver hangs and whose stderr is stuck.
func TestSecondSignal(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	defer server.Close()
	defer close(release)
	config := spoolJob(t, t.TempDir(), fmt.Sprintf("http: { endpoints: [%q] }", server.URL), "    drain: 1h\n")
	d := launch(t, fullPipe(t), bin, "run", config)
	<-arrived
	d.signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		t.Fatal("the first signal ended it at once")
	case <-time.After(500 * time.Millisecond):
	}
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

// TestHangup: SIGHUP drains as SIGTERM does, unless it was ignored when the program started.
func TestHangup(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	run := func(name string, args ...string) (d *process, out string) {
		dir := t.TempDir()
		config := spoolJob(t, dir, "file: { path: ./out.txt, format: raw }", "")
		d = launch(t, null, name, append(args, "run", config)...)
		out = filepath.Join(dir, "out.txt")
		eventually(t, "everything is delivered", func() bool { return sizeOf(out) == 5000*7 })
		return d, out
	}
	d, _ := run(bin)
	d.signal(syscall.SIGHUP)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("SIGHUP: exit code %d, want that of a drained run", code)
	}
	d, out := run("sh", "-c", `trap '' HUP; exec "$0" "$@"`, bin)
	d.signal(syscall.SIGHUP)
	write(t, filepath.Join(filepath.Dir(out), "spool", "b.log"), "one more\n")
	eventually(t, "it still delivers", func() bool { return sizeOf(out) > 5000*7 })
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("after an ignored SIGHUP and a SIGTERM: exit code %d", code)
	}
}
