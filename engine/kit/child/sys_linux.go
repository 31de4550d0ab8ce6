package child

import (
	"errors"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes returns the attributes with which a child is started. They put it into its own process
// group, which has two effects. The child can be killed together with its descendants. And Ctrl-C
// at the terminal does not reach the child, so that it can still process the batches that it has
// received. The attributes also make the kernel kill the child if this process dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit sets the resource limits of a process that has just been started. A limit does not take
// away memory that the process already has.
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

// unreadBytes returns the number of bytes in a pipe, given its read end.
func unreadBytes(readEnd *os.File) (bytes int, ok bool) {
	raw, err := readEnd.SyscallConn()
	if err != nil {
		return 0, false
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		bytes, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	})
	if err != nil || failed != nil {
		return 0, false
	}
	return bytes, true
}
