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

// fullPipe returns the write end of a full pipe without a reader.
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

// process is a run of the program to which a test sends signals.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan error
}

// launch starts a command that ends at the latest with the test.
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

// exit returns the exit code, or fails the test if the program does not end within the bound.
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

// spoolJob writes the config of a job that delivers a spool directory to a sink. It also writes one
// file into that directory. It returns the path of the config.
func spoolJob(t *testing.T, dir, sink, more string) string {
	t.Helper()
	write(t, filepath.Join(dir, "spool", "a.log"), strings.Repeat("a line\n", 5000))
	return write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  job:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    sink: { %s }
%s`, sink, more))
}

// TestStuckStderr runs the program with a stderr that nobody reads, or that is closed. Everything
// must be delivered, the exit code must be correct, and one signal must drain the program.
func TestStuckStderr(t *testing.T) {
	t.Parallel()
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
	for name, pipe := range map[string]func(*testing.T) *os.File{"full": fullPipe,
		"closed": closed} {
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
					eventually(t, "everything is delivered",
						func() bool { return sizeOf(filepath.Join(dir, "out.txt")) == 5000*7 })
					d.signal(syscall.SIGTERM)
				}
				if code := d.exit(20 * time.Second); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if out := read(t, filepath.Join(dir, "out.txt")); !bytes.Equal(out,
					read(t, filepath.Join(dir, "spool", "a.log"))) {
					t.Errorf("%d bytes arrived", len(out))
				}
			})
		}
	}
}

// TestSecondSignal stops a run with a hanging receiver and a blocked stderr.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
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
	config := spoolJob(t, t.TempDir(), fmt.Sprintf("http: { endpoints: [%q] }", server.URL),
		"    drain: 1h\n")
	d := launch(t, fullPipe(t), bin, "run", config)
	select {
	case <-arrived:
	case <-d.ended:
		t.Fatal("the program ended before it sent a request")
	}
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

// TestHangup checks that SIGHUP reloads the config, and that an invalid config changes nothing. If
// SIGHUP was ignored at the start of the program, it stays ignored.
func TestHangup(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	config := filepath.Join(dir, "penstock.yaml")
	configure := func(outputs ...string) {
		routes := ""
		for _, o := range outputs {
			const route = "      %s: { sink: { file: { path: ./%[1]s.txt, format: raw } } }\n"
			routes += fmt.Sprintf(route, o)
		}
		write(t, config, `
state: ./state
pipelines:
  job:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    routes:
`+routes)
	}
	delivered := func(names string, bytes int64) {
		t.Helper()
		for _, name := range strings.Fields(names) {
			eventually(t, name+" has everything",
				func() bool { return sizeOf(filepath.Join(dir, name+".txt")) == bytes })
		}
	}
	write(t, filepath.Join(dir, "spool", "a.log"), strings.Repeat("a line\n", 5000))
	configure("a")
	d := launch(t, log, bin, "run", config)
	delivered("a", 35_000)
	configure("a", "b")
	d.signal(syscall.SIGHUP)
	delivered("b", 35_000)
	write(t, config, string(read(t, config))+"    bach: {}\n")
	d.signal(syscall.SIGHUP)
	eventually(t, "the invalid config is reported", func() bool {
		return strings.Contains(string(read(t, log.Name())), `did you mean`)
	})
	write(t, filepath.Join(dir, "spool", "b.log"), "a line\n")
	delivered("a b", 35_007)
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}

	configure("a", "b")
	d = launch(t, log, "sh", "-c", `trap '' HUP; exec "$0" "$@"`, bin, "run", config)
	write(t, filepath.Join(dir, "spool", "c.log"), "a line\n")
	delivered("a b", 35_014)
	configure("a", "b", "c")
	d.signal(syscall.SIGHUP)
	write(t, filepath.Join(dir, "spool", "d.log"), "a line\n")
	delivered("a b", 35_021)
	if sizeOf(filepath.Join(dir, "c.txt")) > 0 {
		t.Error("an ignored SIGHUP reloaded the config")
	}
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("after an ignored SIGHUP and a SIGTERM: exit code %d", code)
	}
}
