// Package osfs is the file system of the operating system, as the engine uses it. It implements
// package vfs with the system calls of golang.org/x/sys.
//
// On Linux, open files and directories are plain descriptors. Names are resolved relative to the
// descriptor of a directory. Symlinks are not followed. Files are not registered with the poller of
// package os, so that opening a file takes only three system calls.
//
// On other systems, this package uses [vfs.OS]. On Windows it replaces the file lock of vfs.OS by
// another one, with which other processes can read the text of the locked file.
//
// Files and directories must be closed. The garbage collector does not close them.
package osfs

import "github.com/penstock-io/penstock/vfs"

// New returns the file system of the operating system. It has no state and is safe for concurrent
// use.
//
// On Linux, Rename and RenameNew are atomic, even if a directory is renamed at the same time. Some
// file systems, such as NFS, do not support RENAME_NOREPLACE. On these, RenameNew makes a hard link
// and removes the old name, like vfs.OS. Info contains the birth time of a file if the file system
// stores it. Files implement [vfs.GatherWriter], [vfs.Reserver] and [vfs.WriteBacker].
func New() vfs.FS { return system() }
