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
	_, _, devMajor, devMinor       uint32
	_                              [14]uint64
}

type statxTime struct {
	sec  int64
	nsec uint32
	_    int32
}

// statOf is what is known of an open file, by one call.
func statOf(f *os.File, name string) (Info, error) { return stat(f, "", atEmptyPath, name) }

// statAt is statOf for a name in an open directory; a symlink is not followed.
func statAt(dir *os.File, name string) (Info, error) { return stat(dir, name, atSymlinkNoFollow, name) }

// statxBasic asks for what stat gives.
const statxBasic = 0x7ff

func stat(f *os.File, path string, flags uintptr, name string) (Info, error) {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return Info{}, err
	}
	var st statx
	err = withFD(f, func(fd uintptr) error {
		_, _, errno := syscall.Syscall6(sysStatx,
			fd, uintptr(unsafe.Pointer(p)), flags, statxBasic|statxBtime, uintptr(unsafe.Pointer(&st)), 0)
		return asError(errno)
	})
	if err != nil {
		return Info{}, &fs.PathError{Op: "statx", Path: name, Err: err}
	}
	i := Info{
		Name: name, Size: int64(st.size), ModTime: time.Unix(st.wrote.sec, int64(st.wrote.nsec)), Mode: modeOf(st.mode),
		Dev: device(st.devMajor, st.devMinor), Ino: st.ino, Links: uint64(st.links),
	}
	if st.mask&statxBtime != 0 {
		i.Birth = time.Unix(st.born.sec, int64(st.born.nsec))
	}
	return i, nil
}

// device packs a device's two numbers as stat's st_dev does.
func device(major, minor uint32) uint64 {
	a, b := uint64(major), uint64(minor)
	return a&0xfff<<8 | a&^0xfff<<32 | b&0xff | b&^0xff<<12
}

// modeOf is the mode in Go's form.
func modeOf(m uint16) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & syscall.S_IFMT {
	case syscall.S_IFBLK:
		mode |= fs.ModeDevice
	case syscall.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case syscall.S_IFDIR:
		mode |= fs.ModeDir
	case syscall.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case syscall.S_IFLNK:
		mode |= fs.ModeSymlink
	case syscall.S_IFSOCK:
		mode |= fs.ModeSocket
	}
	if m&syscall.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if m&syscall.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if m&syscall.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// readDir lists an open directory. The file of a root stats each entry; a second descriptor of it does not.
func readDir(dir *os.File) ([]os.DirEntry, error) {
	var twin *os.File
	err := withFD(dir, func(fd uintptr) error {
		dup, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, 0)
		if errno == 0 {
			twin = os.NewFile(dup, dir.Name())
		}
		return asError(errno)
	})
	if err != nil {
		return nil, err
	}
	defer twin.Close()
	return twin.ReadDir(-1)
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
		return os.ErrClosed // there is no other reason
	}
	return failed
}

func withFDs(a, b *os.File, do func(a, b uintptr) error) error {
	return withFD(a, func(fdA uintptr) error {
		return withFD(b, func(fdB uintptr) error { return do(fdA, fdB) })
	})
}

// stat is what is known of the name last, which is no path.
func (d *osDir) stat(last string) (Info, error) { return statAt(d.handle, last) }
