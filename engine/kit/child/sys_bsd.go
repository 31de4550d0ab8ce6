//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
)

// attributes puts the child into a group of its own, so that it can be killed with all that it
// starts.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit tells that there are none.
func limit(_ int, s Spec) error {
	if s.Memory > 0 || s.CPU > 0 {
		return errors.New("memory and cpu limits of children need Linux")
	}
	return nil
}
