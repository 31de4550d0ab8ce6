package vfs

import (
	"io/fs"
	"os"
)

// osFile is a regular file of the operating system.
type osFile struct {
	*os.File
	name string // last part of its name
}

func (f *osFile) Stat() (Info, error) { return statOf(f.File, f.name) }

func statOf(f *os.File, name string) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(info, name), nil
}

func infoOf(info fs.FileInfo, name string) Info {
	i := Info{Name: name, Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode(),
		Birth: birthOf(info)}
	i.Dev, i.Ino, i.Links = inode(info)
	return i
}
