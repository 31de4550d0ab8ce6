//go:build linux && (amd64 || arm64)

package vfs

import "syscall"

// rangeWrite is SYNC_FILE_RANGE_WRITE of sync_file_range(2).
const rangeWrite = 0x02

func beginWriting(f *osFile, from, length int64) error {
	return withFD(f.File, func(fd uintptr) error {
		for {
			err := syscall.SyncFileRange(int(fd), from, length, rangeWrite)
			if err != syscall.EINTR {
				return err
			}
		}
	})
}
