//go:build !(linux && (amd64 || arm64))

package vfs

import (
	"io/fs"
	"os"
	"time"
)

func statOf(f *os.File, name string) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(info, name, birthOf(info)), nil
}

// stat is what is known of the name last, which is no path.
func (d *osDir) stat(last string) (Info, error) {
	info, err := d.root.Lstat(last)
	if err != nil {
		return Info{}, err
	}
	return infoOf(info, last, birthOf(info)), nil
}

func infoOf(info fs.FileInfo, name string, birth time.Time) Info {
	i := Info{Name: name, Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode(), Birth: birth}
	i.Dev, i.Ino, i.Links = inode(info)
	return i
}

func readDir(dir *os.File) ([]os.DirEntry, error) { return dir.ReadDir(-1) }
