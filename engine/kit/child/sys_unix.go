//go:build unix

package child

import (
	"errors"
	"os"
	"syscall"
)

// killGroup kills a process with its group. That it is gone already is no error.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
