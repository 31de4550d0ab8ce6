//go:build unix && !linux

package child

import "syscall"

// attributes returns the attributes with which a child is started. They put it into its own process
// group, so that it can be killed with its descendants.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
