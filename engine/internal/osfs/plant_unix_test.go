//go:build unix

package osfs_test

import (
	"os"
	"syscall"

	"github.com/penstock-io/penstock/vfs/vfstest"
)

func plant(h *vfstest.Harness) {
	h.Symlink = os.Symlink
	h.FIFO = func(path string) error { return syscall.Mkfifo(path, 0o600) }
}
