//go:build linux || darwin

package osfs

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestWithLockConforms runs the conformance suite on the file system that Windows uses. The lock of
// Windows is replaced by one of Unix.
func TestWithLockConforms(t *testing.T) {
	take := func(f vfs.File) error {
		err := unix.Flock(int(f.(interface{ Fd() uintptr }).Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return vfs.ErrLocked
		}
		return err
	}
	vfstest.TestFS(t, func(t *testing.T) vfstest.Harness {
		return vfstest.Harness{
			FS: withLock(vfs.OS(), take), Root: t.TempDir(), Symlink: os.Symlink,
			FIFO: func(path string) error { return syscall.Mkfifo(path, 0o600) },
		}
	})
}
