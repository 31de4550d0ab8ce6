package osfs

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
)

// statAt returns the Info of path, relative to the directory dir. If path is empty, dir may be the
// descriptor of any file, and statAt returns its Info. It does not follow a symlink. The Info gets
// the given name.
func statAt(dir int, path, name string) (vfs.Info, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if path == "" {
		flags = unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	err := uninterrupted(func() error {
		return unix.Statx(dir, path, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	})
	if err != nil {
		return vfs.Info{}, err
	}
	info := vfs.Info{
		Name: name, Size: int64(st.Size), ModTime: timeOf(st.Mtime), Mode: modeOf(uint32(st.Mode)),
		Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, Links: uint64(st.Nlink),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		info.Birth = timeOf(st.Btime)
	}
	return info, nil
}

func timeOf(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// modeOf converts a mode of stat(2).
func modeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	}
	if m&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if m&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if m&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}
