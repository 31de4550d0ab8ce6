//go:build linux && (amd64 || arm64)

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// Numbers of statx(2), renameat(2) and linkat(2).
const (
	atSymlinkNoFollow = 0x100
	atEmptyPath       = 0x1000
	statxIno          = 0x100
	statxBtime        = 0x800
	renameNoReplace   = 1
)

// statx is struct statx of linux/stat.h, 256 bytes, the same on every architecture.
type statx struct {
	mask, blockSize                uint32
	attributes                     uint64
	links, uid, gid                uint32
	mode                           uint16
	_                              uint16
	ino, size, blocks, attrMask    uint64
	accessed, born, changed, wrote statxTime
	_                              [16]uint64
}

type statxTime struct {
	sec  int64
	nsec uint32
	_    int32
}

// birthOf returns when the open file was made; zero where the file system does not tell.
func birthOf(f *os.File, info fs.FileInfo) time.Time { return birth(f, "", atEmptyPath, info) }

// birthAt is birthOf for a name in an open directory.
func birthAt(dir *os.File, name string, info fs.FileInfo) time.Time {
	return birth(dir, name, atSymlinkNoFollow, info)
}

func birth(f *os.File, name string, flags uintptr, info fs.FileInfo) time.Time {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return time.Time{}
	}
	var st statx
	err = withFD(f, func(fd uintptr) error {
		_, _, errno := syscall.Syscall6(sysStatx,
			fd, uintptr(unsafe.Pointer(p)), flags, statxBtime|statxIno, uintptr(unsafe.Pointer(&st)), 0)
		return asError(errno)
	})
	_, ino, _ := inode(info)
	if err != nil || st.mask&statxBtime == 0 || st.ino != ino {
		return time.Time{}
	}
	return time.Unix(st.born.sec, int64(st.born.nsec))
}

// renameAt renames by the handles of the two directories.
func renameAt(from *osDir, oldName string, into *osDir, newName string) error {
	return withFDs(from.handle, into.handle, func(a, b uintptr) error {
		return syscall.Renameat(int(a), oldName, int(b), newName)
	})
}

// renameNewAt is renameat2 with RENAME_NOREPLACE; file systems that lack it (NFS) get a link and a removal.
func renameNewAt(from *osDir, oldName string, into *osDir, newName string) error {
	a, err := syscall.BytePtrFromString(oldName)
	if err != nil {
		return err
	}
	b, err := syscall.BytePtrFromString(newName)
	if err != nil {
		return err
	}
	err = withFDs(from.handle, into.handle, func(fdA, fdB uintptr) error {
		_, _, errno := syscall.Syscall6(sysRenameat2, fdA, uintptr(unsafe.Pointer(a)), fdB, uintptr(unsafe.Pointer(b)), renameNoReplace, 0)
		return asError(errno)
	})
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) {
		return moveNewByLink(from, oldName, into, newName)
	}
	return err
}

func asError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// withFD calls do with the descriptor of f, which stays open meanwhile, again as long as a signal interrupts it.
func withFD(f *os.File, do func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) {
		for failed = do(fd); errors.Is(failed, syscall.EINTR); failed = do(fd) {
		}
	}); err != nil {
		return err
	}
	return failed
}

func withFDs(a, b *os.File, do func(a, b uintptr) error) error {
	return withFD(a, func(fdA uintptr) error {
		return withFD(b, func(fdB uintptr) error { return do(fdA, fdB) })
	})
}
