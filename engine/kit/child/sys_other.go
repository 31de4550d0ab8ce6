//go:build !unix

package child

import (
	"errors"
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// killGroup kills the process. This system has no process groups.
func killGroup(p *os.Process) { _ = p.Kill() }

// terminateGroup returns false, because this system has no signals.
func terminateGroup(*os.Process) bool { return false }

// limit returns an error if a limit is set, because this system does not support limits.
func limit(_ int, s Spec) error {
	if s.Memory > 0 || s.CPU > 0 {
		return errors.New("memory and cpu limits of children need Linux")
	}
	return nil
}

func brokenPipe(error) bool { return false }

// isTemporary returns false, because the errors of a start are not known here.
func isTemporary(error) bool { return false }
