// Package osfs implements package vfs with the file system of the operating system.
//
// On Linux, it uses the system calls of golang.org/x/sys. Open files and directories are plain
// descriptors. Names are resolved relative to the descriptor of a directory. Symlinks in them are
// not followed. Files are not registered with the poller of package os, which saves system calls
// when a file is opened.
//
// On other systems, this package uses [vfs.OS].
//
// Files and directories must be closed. On Linux, the garbage collector does not close them.
package osfs

import "github.com/penstock-io/penstock/vfs"

// New returns the file system of the operating system. It has no state and is safe for concurrent
// use.
//
// On Linux, Rename is atomic, even if a directory is renamed at the same time. So is RenameNew if
// the file system supports RENAME_NOREPLACE, which some, such as NFS, do not. Without it, RenameNew
// makes a hard link and removes the old name, like vfs.OS. Info contains the birth time of a file
// if the file system stores it. Files implement [vfs.GatherWriter], [vfs.Reserver] and
// [vfs.WriteBacker].
func New() vfs.FS { return system() }
