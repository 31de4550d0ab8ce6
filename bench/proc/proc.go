// Package proc runs other programs and says what they took: wall time, processor time, peak memory.
// It ends what it started and nothing else.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Run is what one process took.
type Run struct {
	Seconds float64 // wall time from its start to its end
	CPU     float64 // user and system seconds, its children included once they are waited for
	RSSMiB  float64 // peak resident memory
	Out     []byte
}

// Process is one that runs.
type Process struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	begun    time.Time
	ended    chan struct{}
	failure  error
	peak     float64 // MiB; valid once ended is closed
	seconds  float64
}

// running are the processes that have not ended, and ending says that KillAll was called.
var (
	running sync.Map
	ending  atomic.Bool
)

// ErrEnding is why nothing is started any more.
var ErrEnding = errors.New("interrupted: nothing is started any more")

// Ending says that the harness was told to end.
func Ending() bool { return ending.Load() }

// KillAll kills what has been started and runs, when the harness itself is told to end. From then
// on nothing is started: who waited for one that is killed here would start the next.
func KillAll() {
	ending.Store(true)
	running.Range(func(p, _ any) bool {
		p.(*Process).Kill()
		return true
	})
}

// peakEvery is how often the peak of memory is looked at; the kernel keeps it, so that only a peak
// in the last moments of a process is missed.
const peakEvery = 20 * time.Millisecond

// Start starts a program in a folder; "" is the current one.
func Start(dir, name string, args ...string) (*Process, error) {
	if Ending() {
		return nil, ErrEnding
	}
	p := &Process{cmd: exec.Command(name, args...), ended: make(chan struct{}), begun: time.Now()}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	running.Store(p, true)
	waited := make(chan struct{})
	go func() {
		p.failure = p.cmd.Wait()
		running.Delete(p)
		p.seconds = time.Since(p.begun).Seconds()
		close(waited)
	}()
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(peakEvery)
		defer tick.Stop()
		for {
			if mib, ok := p.resident(); ok {
				p.peak = mib
			}
			select {
			case <-tick.C:
			case <-waited:
				return
			}
		}
	}()
	if Ending() { // KillAll may have looked before this one was there
		p.Kill()
		return nil, ErrEnding
	}
	return p, nil
}

// resident reads the peak of the process's own image: what wait4 tells begins with the memory of
// the harness, from which the process was forked.
func (p *Process) resident() (mib float64, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, false
	}
	_, after, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		return 0, false
	}
	kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	return kib / 1024, err == nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the end. An error carries what the program said.
func (p *Process) Wait() (Run, error) {
	<-p.ended
	r := Run{Seconds: p.seconds, RSSMiB: p.peak, Out: p.out.Bytes()}
	if state := p.cmd.ProcessState; state != nil {
		r.CPU = (state.UserTime() + state.SystemTime()).Seconds()
		if usage, ok := state.SysUsage().(*syscall.Rusage); ok && r.RSSMiB == 0 {
			r.RSSMiB = float64(usage.Maxrss) / 1024
		}
	}
	if p.failure != nil {
		name := filepath.Base(p.cmd.Path)
		return r, fmt.Errorf("%s: %w\n%s%s", name, p.failure, tail(p.out.Bytes()), tail(p.err.Bytes()))
	}
	return r, nil
}

func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

// Kill is kill -9; it returns when the process is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// Stop asks it to end, kills it when it does not within patience, and returns what it took. How it
// ended is no error: programs answer SIGTERM in several ways.
func (p *Process) Stop(patience time.Duration) (Run, error) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Kill()
	}
	r, err := p.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		err = nil
	}
	return r, err
}

// Do runs a program to its end.
func Do(name string, args ...string) (Run, error) {
	p, err := Start("", name, args...)
	if err != nil {
		return Run{}, err
	}
	return p.Wait()
}

// Self runs this program.
func Self(args ...string) (Run, error) {
	exe, err := os.Executable()
	if err != nil {
		return Run{}, err
	}
	return Do(exe, args...)
}
