package osfs

import (
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/penstock-io/penstock/vfs"
)

func system() vfs.FS { return linux{} }

type linux struct{}

func (linux) OpenDir(path string) (vfs.Dir, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open directory", Path: path, Err: err}
	}
	return &dir{descriptor: descriptor{fd: fd}, path: path}, nil
}

func (l linux) MakeDir(path string, perm fs.FileMode) (vfs.Dir, error) {
	return vfs.MakeDirs(l, path, perm)
}
