//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hangLimit bounds every wait for the program. If the process is still running after it, the case
// fails and prints the process's stacks.
const hangLimit = time.Minute

// nobody is the user and group without rights.
const nobody = 65534

// program builds penstock once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "penstock-faults-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // some cases run as another user
		return "", err
	}
	bin := filepath.Join(dir, "penstock")
	cmd := exec.Command("go", "build", "-o", bin,
		"github.com/penstock-io/penstock/engine/cmd/penstock")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build penstock: %v\n%s", err, out)
	}
	return bin, nil
})

// rig is the fixture of one case: a folder, receivers, processes, and the findings so far.
// Goroutines of the case may call its methods, except check and fatalf, which may end the goroutine
// that calls them.
type rig struct {
	t   *testing.T
	dir string

	mu       sync.Mutex
	findings []string
	cleanups []func()
}

func (r *rig) errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, fmt.Sprintf(format, args...))
}

func (r *rig) fatalf(format string, args ...any) {
	r.errorf(format, args...)
	runtime.Goexit()
}

// check ends the case if the harness itself failed.
func (r *rig) check(err error) {
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		r.fatalf("the harness failed at %s:%d: %v", filepath.Base(file), line, err)
	}
}

func (r *rig) cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) {
	r.check(os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	r.check(os.WriteFile(r.path(name), []byte(text), 0o644))
}

func (r *rig) appendTo(name, text string) {
	f, err := os.OpenFile(r.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	r.check(err)
	_, err = f.WriteString(text)
	r.check(err)
	r.check(f.Close())
}

// read returns the text of a file, or "" if there is none.
func (r *rig) read(name string) string {
	text, err := os.ReadFile(r.path(name))
	if err != nil && !os.IsNotExist(err) {
		r.check(err)
	}
	return string(text)
}

// until waits until the condition holds. It reports whether this happened within the limit.
func until(limit time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// pause waits for a fixed time, to inject a fault at that time or to check that nothing happens.
func pause(d time.Duration) { until(d, func() bool { return false }) }

// process is one run of the program.
type process struct {
	r      *rig
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	ended  chan struct{} // closed when the process has ended
}

// launch describes how the program is started.
type launch struct {
	args   []string
	limits string   // shell commands before it, such as "ulimit -n 20"
	env    []string // besides PATH and HOME
	stderr *os.File // nil: it is captured
	stdout *os.File // nil: it is captured

	asNobody bool // without the rights of root
}

func (r *rig) start(l launch) *process {
	bin, err := program()
	r.check(err)
	p := &process{r: r, ended: make(chan struct{})}
	if l.limits == "" {
		p.cmd = exec.Command(bin, l.args...)
	} else {
		p.cmd = exec.Command("bash", append([]string{"-c", l.limits + `; exec "$0" "$@"`, bin},
			l.args...)...)
	}
	p.cmd.Dir = r.dir
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir,
		"TMPDIR=" + os.TempDir()}, l.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if l.stderr != nil {
		p.cmd.Stderr = l.stderr
	}
	if l.stdout != nil {
		p.cmd.Stdout = l.stdout
	}
	if l.asNobody && os.Getuid() == 0 {
		r.check(filepath.WalkDir(r.dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, nobody, nobody)
		}))
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody,
			Gid: nobody}}
	}
	p.cmd.WaitDelay = 5 * time.Second // a grandchild may keep the pipes
	r.check(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	r.cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// wait returns the exit code of the process. If a signal ended the process, it returns the negative
// number of the signal. If the process runs longer than the limit, wait ends the process, reports
// its stacks and ends the case.
func (p *process) wait(limit time.Duration) int {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.signal(syscall.SIGQUIT)
		if !until(5*time.Second, func() bool { return !p.running() }) {
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
		log, stacks, _ := strings.Cut(p.stderr.String(), "SIGQUIT")
		p.r.fatalf("the program was still running after %v; its log:\n%s\nits stacks:\n%s", limit,
			tail(log, 3000), tail(stacks, 60_000))
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return -int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// expect waits for the end and requires one of the exit codes.
func (p *process) expect(codes ...int) int {
	code := p.wait(hangLimit)
	if !slices.Contains(codes, code) {
		p.r.errorf("exit code %d, want one of %v; %s\n%s", code, codes, p.stdout.String(),
			tail(p.stderr.String(),
				3000))
	}
	return code
}

// routeSummary is one route in the last line of run --json.
type routeSummary struct {
	Pipeline, Route          string
	Delivered, Dead, Dropped int64
	Waiting                  int64
	ReadRecords              int64 `json:"read_records"`
	InFlight                 int64 `json:"in_flight"`
	Attempts, Redelivered    int64
}

// summary is the last line of run --json.
type summary struct {
	OK        bool
	Error     string
	Pipelines []routeSummary
}

// summary parses the last line of standard output and checks it. It must agree with the exit code.
// The number of read records must equal the sum of the delivered, dead, dropped, in-flight and
// waiting records.
func (p *process) summary(code int) (s summary) {
	lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil {
		p.r.fatalf("exit code %d, and the last line of stdout is no summary: %q\n%s", code,
			lines[len(lines)-1],
			tail(p.stderr.String(), 3000))
	}
	if s.OK != (code == 0) {
		p.r.errorf("exit code %d, but the summary has ok=%v", code, s.OK)
	}
	if code != 0 && s.Error == "" {
		p.r.errorf("exit code %d, and the summary has no error", code)
	}
	for _, route := range s.Pipelines {
		if sum := route.Delivered + route.Dead + route.Dropped + route.InFlight +
			route.Waiting; sum != route.ReadRecords {
			p.r.errorf("route %s/%s read %d records and accounts for %d: %+v", route.Pipeline,
				route.Route,
				route.ReadRecords, sum, route)
		}
		if code == 0 && route.InFlight+route.Waiting != 0 {
			p.r.errorf("exit code 0 with %d records in flight and %d waiting", route.InFlight,
				route.Waiting)
		}
	}
	return s
}

func tail(text string, n int) string {
	if len(text) > n {
		return "..." + text[len(text)-n:]
	}
	return text
}
