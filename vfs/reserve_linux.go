//go:build linux && (amd64 || arm64)

package vfs

import "syscall"

// keepSize is FALLOC_FL_KEEP_SIZE of fallocate(2).
const keepSize = 0x01

func allot(f *osFile, from, length int64) error {
	return withFD(f.File, func(fd uintptr) error {
		for {
			err := syscall.Fallocate(int(fd), keepSize, from, length)
			if err != syscall.EINTR {
				return err
			}
		}
	})
}
