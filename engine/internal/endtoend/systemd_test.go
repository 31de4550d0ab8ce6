package endtoend

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// notifications receives the messages of a program to its service manager.
type notifications struct {
	mu       sync.Mutex
	messages []string
}

func receive(t *testing.T, path string) *notifications {
	t.Helper()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	n := &notifications{}
	go func() {
		for text := make([]byte, 4096); ; {
			size, err := l.Read(text)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.messages = append(n.messages, string(text[:size]))
			n.mu.Unlock()
		}
	}()
	return n
}

// count returns the number of messages with all of the parts.
func (n *notifications) count(parts ...string) (found int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.messages {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(m, p)
		}
		if all {
			found++
		}
	}
	return found
}

// TestServiceManager runs the program as systemd does, with a socket for notifications and a
// watchdog. The program must report that it is ready, alive, reloading and stopping, and that a
// reload has failed.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	got := receive(t, socket)
	config := spoolJob(t, dir, "file: { path: ./out.txt, format: raw }", "")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := launch(t, log, "env", "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=600000",
		bin, "run", config)
	eventually(t, "it is ready",
		func() bool { return got.count("READY=1", "STATUS=1 route") == 1 })
	eventually(t, "it makes progress", func() bool { return got.count("WATCHDOG=1") >= 3 })
	d.signal(syscall.SIGHUP)
	eventually(t, "it reloads", func() bool { return got.count("READY=1", "STATUS=") == 2 })
	if got.count("RELOADING=1", "MONOTONIC_USEC=") != 1 {
		t.Errorf("messages: %q", got.messages)
	}
	write(t, config, "pipelines: {}\n")
	d.signal(syscall.SIGHUP)
	eventually(t, "the failure is reported",
		func() bool { return got.count("READY=1", "STATUS=the last reload failed: ") == 1 })
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got.count("STOPPING=1") != 1 {
		t.Errorf("messages: %q", got.messages)
	}
}

// TestServiceUnit checks the unit of the Debian package. When the watchdog stops the program, the
// program must end by the signal. With exit code 2, systemd would not restart it.
func TestServiceUnit(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	deploy := filepath.Join("..", "..", "..", "deploy")
	text := string(read(t, filepath.Join(deploy, "systemd", "penstock.service")))
	unit := filepath.Join(dir, "penstock.service")
	write(t, unit, strings.ReplaceAll(text, "/usr/bin/penstock", bin))
	if analyze, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("the unit is not verified: there is no systemd-analyze")
	} else {
		out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
		if err != nil || strings.Contains(string(out), "penstock.service") {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	}
	environment := ""
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "Environment="); ok {
			environment = strings.TrimSpace(value)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	config := spoolJob(t, dir, "file: { path: ./out.txt, format: raw }", "")
	d := launch(t, log, "sh", "-c", `ulimit -c 0; exec "$@"`, "sh",
		"env", environment, bin, "run", config)
	eventually(t, "it delivers",
		func() bool { return sizeOf(filepath.Join(dir, "out.txt")) == 35_000 })
	d.signal(syscall.SIGABRT)
	if code := d.exit(20 * time.Second); code != -1 {
		t.Errorf("exit code %d after SIGABRT with %s, want a signal", code, environment)
	}
}
