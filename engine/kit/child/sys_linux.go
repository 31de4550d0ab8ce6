package child

import (
	"errors"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes puts the child into a group of its own, so that it can be killed with all that it
// starts and a Ctrl-C at the terminal does not reach it while its batches are drained; and lets the
// kernel kill it when this process is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit sets the limits of a process that has just been started. What it has taken in that moment
// it keeps.
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
