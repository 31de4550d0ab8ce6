package child

import (
	"errors"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes puts the child into its own process group. The child can then be killed with its
// descendants, and Ctrl-C at the terminal does not reach it while its batches are drained. The
// kernel kills the child if this process is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit sets the limits of a process that has just been started. Resources that the process has
// acquired before are not taken away.
func limit(pid int, s Spec) error {
	var errs []error
	set := func(resource int, n uint64) {
		l := &unix.Rlimit{Cur: n, Max: n}
		if err := unix.Prlimit(pid, resource, l, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	if s.Memory > 0 {
		set(unix.RLIMIT_AS, uint64(s.Memory))
	}
	if s.CPU > 0 {
		set(unix.RLIMIT_CPU, uint64(math.Ceil(float64(s.CPU)/float64(time.Second))))
	}
	return errors.Join(errs...)
}
