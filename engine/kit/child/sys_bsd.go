//go:build unix && !linux

package child

import (
	"errors"
	"syscall"
)

// attributes returns the attributes with which a child is started. They put it into its own process
// group, so that it can be killed with its descendants.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit returns an error if a limit is set, because this system does not support limits.
func limit(_ int, s Spec) error {
	if s.Memory > 0 || s.CPU > 0 {
		return errors.New("memory and cpu limits of children need Linux")
	}
	return nil
}
