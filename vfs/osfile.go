package vfs

import (
	"io/fs"
	"os"
	"time"
)

// osFile is a regular file of the operating system.
type osFile struct {
	*os.File
	name string // its last part
}

func (f *osFile) Stat() (Info, error) {
	info, err := f.File.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(info, f.name, birthOf(f.File, info)), nil
}

func infoOf(info fs.FileInfo, name string, birth time.Time) Info {
	i := Info{Name: name, Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode(), Birth: birth}
	i.Dev, i.Ino, i.Links = inode(info)
	return i
}
