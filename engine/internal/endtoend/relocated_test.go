package endtoend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/vfs"
)

// relocatedFS presents a directory of this machine (the field now) under the path that it had on
// another machine (the field was), with the device number of that machine. The files in the map
// files also get the inode and birth time of that machine. Other files count as new.
type relocatedFS struct {
	vfs.FS
	was, now string
	dev      uint64
	files    map[seenFile]upgradeFile
}

// seenFile identifies a file on the machine of the test.
type seenFile struct {
	ino   uint64
	birth int64
}

// newOffset is added to the inodes of new files, so that they differ from those of old files.
const newOffset = 1 << 40

func newRelocatedFS(t *testing.T, was, now string, files []upgradeFile) *relocatedFS {
	t.Helper()
	r := &relocatedFS{FS: connectortest.FS(), was: was, now: now,
		files: make(map[seenFile]upgradeFile)}
	for _, f := range files {
		path := filepath.Join(now, f.Path)
		changed := time.Unix(0, f.ModTime)
		if err := os.Chtimes(path, changed, changed); err != nil {
			t.Fatal(err)
		}
		dir, err := r.FS.OpenDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		info, err := dir.Stat(filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
		r.dev = f.Dev
		r.files[seen(info)] = f
	}
	return r
}

func seen(info vfs.Info) seenFile {
	f := seenFile{ino: info.Ino}
	if !info.Birth.IsZero() {
		f.birth = info.Birth.UnixNano()
	}
	return f
}

func (r *relocatedFS) info(info vfs.Info) vfs.Info {
	if f, ok := r.files[seen(info)]; ok {
		info.Ino, info.Birth = f.Ino, time.Unix(0, f.Birth)
	} else {
		info.Ino += newOffset
	}
	info.Dev = r.dev
	return info
}

// OpenDir implements vfs.FS.
func (r *relocatedFS) OpenDir(path string) (vfs.Dir, error) {
	rest, beneath := strings.CutPrefix(path, r.was)
	if !beneath {
		return r.FS.OpenDir(path)
	}
	d, err := r.FS.OpenDir(r.now + rest)
	if err != nil {
		return nil, err
	}
	return relocatedDir{d, r}, nil
}

type relocatedDir struct {
	vfs.Dir
	r *relocatedFS
}

// Stat implements vfs.Dir.
func (d relocatedDir) Stat(name string) (vfs.Info, error) {
	info, err := d.Dir.Stat(name)
	return d.r.info(info), err
}

// Open implements vfs.Dir.
func (d relocatedDir) Open(name string) (vfs.File, error) {
	f, err := d.Dir.Open(name)
	if err != nil {
		return nil, err
	}
	return relocatedFile{f, d.r}, nil
}

// OpenDir implements vfs.Dir.
func (d relocatedDir) OpenDir(name string) (vfs.Dir, error) {
	sub, err := d.Dir.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return relocatedDir{sub, d.r}, nil
}

// Rename implements vfs.Dir.
func (d relocatedDir) Rename(oldName string, to vfs.Dir, newName string) error {
	return d.Dir.Rename(oldName, bare(to), newName)
}

// RenameNew implements vfs.Dir.
func (d relocatedDir) RenameNew(oldName string, to vfs.Dir, newName string) error {
	return d.Dir.RenameNew(oldName, bare(to), newName)
}

func bare(d vfs.Dir) vfs.Dir {
	if r, ok := d.(relocatedDir); ok {
		return r.Dir
	}
	return d
}

type relocatedFile struct {
	vfs.File
	r *relocatedFS
}

// Stat implements vfs.File.
func (f relocatedFile) Stat() (vfs.Info, error) {
	info, err := f.File.Stat()
	return f.r.info(info), err
}
