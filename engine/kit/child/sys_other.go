//go:build !unix

package child

import (
	"errors"
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// killGroup kills the process; this system has no groups that could be killed.
func killGroup(p *os.Process) { _ = p.Kill() }

// limit tells that there are none.
func limit(_ int, s Spec) error {
	if s.Memory > 0 || s.CPU > 0 {
		return errors.New("memory and cpu limits of children need Linux")
	}
	return nil
}

func brokenPipe(error) bool { return false }
