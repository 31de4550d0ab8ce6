//go:build !unix

package child

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// killGroup kills the process. This system has no process groups.
func killGroup(p *os.Process) { _ = p.Kill() }

// terminateGroup returns false, because this system has no signals.
func terminateGroup(*os.Process) bool { return false }

func brokenPipe(error) bool { return false }

// isTemporary returns false, because the errors of a start are not known here.
func isTemporary(error) bool { return false }
