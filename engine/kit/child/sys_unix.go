//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

// killGroup kills a process with its group. It ignores the error if they have already ended.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// terminateGroup sends SIGTERM to a process and its group, and reports whether it did.
func terminateGroup(p *os.Process) bool { return syscall.Kill(-p.Pid, syscall.SIGTERM) == nil }

func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
