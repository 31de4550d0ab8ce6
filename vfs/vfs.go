// Package vfs has file systems for programs that need durability. Sync and rename are explicit, so
// that a program can control the state after a crash. Names are relative to an open directory and
// never lead through a symlink.
//
//	dir, err := vfs.OS().OpenDir("spool")
//	...
//	f, err := dir.OpenFile("a.tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
//	...
//	err = errors.Join(f.Sync(), f.Close())
//	...
//	err = dir.Rename("a.tmp", dir, "a")
//	...
//	err = dir.Sync() // from here on the name is durable
//
// [OS] is the portable implementation. Its documentation states its limits. Package vfstest has an
// in-memory file system that simulates the loss of unsynced data in a crash, and a conformance
// suite for implementations. The in-memory file system and [OS] run under testing/synctest.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"time"
)

// ErrLocked is returned if another holder has the lock. This is another process, or this process
// itself through an earlier Lock. The error's text has the name of the file and, if known, the text
// of the holder.
var ErrLocked = errors.New("vfs: already locked")

// ErrNotRegular is returned if a name is a symlink, directory, FIFO, socket or device, but a
// regular file is wanted. It is also returned for a symlink in place of a directory. The error's
// text names the kind.
var ErrNotRegular = errors.New("vfs: not a regular file")

// FS opens directories. Paths are in the form of the operating system.
type FS interface {
	// OpenDir opens an existing directory. Its path may lead through symlinks, because the user
	// chose it. Names beneath the directory may not.
	OpenDir(path string) (Dir, error)
	// MakeDir opens a directory. If the directory or parents of it are missing, it first makes them
	// with perm, and makes their names durable.
	MakeDir(path string, perm fs.FileMode) (Dir, error)
}

// Dir is an open directory. Names are relative to it and use slashes. They are never absolute and
// never lead out of it by "..". A Dir is safe for concurrent use.
type Dir interface {
	Path() string // as it was opened; for messages only
	// Open opens a regular file for reading. It follows no symlink in any part of name, and does
	// not block on a FIFO. It returns ErrNotRegular for both.
	Open(name string) (File, error)
	// OpenFile opens a regular file with the os.O_ flags. A new file gets perm, and its name is
	// durable only after Sync of the directory.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Stat(name string) (Info, error) // describes the name itself: symlinks are not followed
	// Entries lists the directory with this name ("." for the Dir itself), in no particular order.
	// Entries deleted meanwhile cause no error.
	Entries(name string) ([]Entry, error)
	// Rename moves the file oldName into the Dir to, which may be this one, and names it newName.
	// It replaces an existing file newName. The rename is durable only after Sync of both
	// directories. Rename fails across file systems.
	Rename(oldName string, to Dir, newName string) error
	// RenameNew is like Rename, but returns fs.ErrExist if newName exists. If the system has no
	// atomic call for this, a crash may leave both names.
	RenameNew(oldName string, to Dir, newName string) error
	Remove(name string) error
	MakeDir(name string, perm fs.FileMode) (Dir, error) // like FS.MakeDir, within d
	OpenDir(name string) (Dir, error)
	// Sync makes names that were made, renamed or removed in the directory itself durable.
	Sync() error
	// Lock locks the file with this name exclusively. It creates the file if it is missing, and
	// never removes it. The lock is held until the result is closed or the process ends for any
	// reason. If another holder has the lock, Lock returns ErrLocked at once. It returns
	// errors.ErrUnsupported if the system has no such locks. text identifies this holder: Lock
	// writes it into the file. If a later Lock is refused, its error contains that text.
	Lock(name, text string) (io.Closer, error)
	Close() error
}

// Linker is implemented by a Dir that can read symlinks.
type Linker interface {
	// ReadLink returns the target of the symlink name. The parts of name before the last must not
	// be symlinks.
	ReadLink(name string) (string, error)
}

// File is an open regular file. Read, Write and Seek share one offset. ReadAt does not use it, and
// may be called concurrently.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Seeker
	io.Closer
	Stat() (Info, error)
	Truncate(size int64) error
	// Sync makes the file's bytes and length durable. After an error, the writes since the last
	// successful Sync may be lost. Then close the file and trust only the bytes that were synced
	// before.
	Sync() error
}

// Info describes a file without its content.
type Info struct {
	Name     string
	Size     int64
	ModTime  time.Time
	Mode     fs.FileMode
	Dev, Ino uint64    // 0 if the system has none
	Birth    time.Time // zero if the system reports none
	Links    uint64
}

// Entry is one name in a directory. Type is the type of the name itself: symlinks are not followed.
type Entry struct {
	Name string
	Type fs.FileMode // type bits only
}
