//go:build unix

package child

import (
	"errors"
	"os"
	"slices"
	"syscall"
)

// killGroup kills a process with its group. It ignores the error if they have already ended.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// terminateGroup sends SIGTERM to a process and its group, and reports whether it did.
func terminateGroup(p *os.Process) bool { return syscall.Kill(-p.Pid, syscall.SIGTERM) == nil }

// isTemporary reports whether a start that has failed for the reason err may succeed later: the
// system has no further process, memory or file descriptor, or the program's file is being written.
func isTemporary(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY,
	}, func(reason error) bool { return errors.Is(err, reason) })
}

func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
