// Package proc runs programs and measures their time, CPU time and peak memory. It ends only
// processes that it has started.
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

// Run has the resources that one process has used.
type Run struct {
	Seconds float64 // time from its start to its end
	CPU     float64 // user and system seconds, with those of its children that have ended
	RSSMiB  float64 // peak memory
	Out     []byte
}

// Process is a running process.
type Process struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	begun    time.Time
	ended    chan struct{}
	failure  error
	peak     float64 // in MiB; valid when ended is closed
	seconds  float64
}

// running has the processes that have not ended. KillAll sets ending.
var (
	running sync.Map
	ending  atomic.Bool
)

// ErrEnding is returned by Start after a call of KillAll.
var ErrEnding = errors.New("interrupted: nothing is started any more")

// Ending reports whether KillAll was called.
func Ending() bool { return ending.Load() }

// KillAll kills all processes that Start has started. Call it before the program ends. After this
// call, Start starts nothing. Otherwise a goroutine that was waiting for a killed process would
// start the next one.
func KillAll() {
	ending.Store(true)
	running.Range(func(p, _ any) bool {
		p.(*Process).Kill()
		return true
	})
}

// peakEvery is the interval at which the peak memory is read. The kernel remembers the peak, so
// only a peak that begins in the last interval of a process may be missed.
const peakEvery = 20 * time.Millisecond

// Start starts a program in a directory. "" means the current directory.
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
	if Ending() { // KillAll may have run before this process was added to running
		p.Kill()
		return nil, ErrEnding
	}
	return p, nil
}

// resident returns the peak memory of the program that p runs, since exec. ok is false if it cannot
// be read, for example because the process has ended. resident does not use the rusage of wait4,
// which counts from the fork. Between fork and exec, the new process still has the memory of bench,
// the command that starts it.
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

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits until the process has ended. An error contains the end of the program's output.
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
		return r, fmt.Errorf("%s: %w\n%s%s", name, p.failure, tail(p.out.Bytes()),
			tail(p.err.Bytes()))
	}
	return r, nil
}

func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

// Kill kills the process with SIGKILL and returns when it has ended.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// Stop sends SIGTERM and waits for the end of the process. If the process has not ended within
// patience, Stop kills it. The exit status is ignored, because programs react to SIGTERM in
// different ways.
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

// Self runs this command with other arguments.
func Self(args ...string) (Run, error) {
	exe, err := os.Executable()
	if err != nil {
		return Run{}, err
	}
	return Do(exe, args...)
}
