// Package osfs is the file system that the engine uses. It implements package vfs with the system
// calls of golang.org/x/sys.
//
// On Linux, directories and files are raw descriptors. Every name is resolved relative to a
// descriptor, without following symlinks. Opening a file takes three system calls, because the file
// is not registered with the poller of package os. On other systems it is [vfs.OS], on Windows with
// a file lock.
//
// Directories and files must be closed, because the garbage collector does not close them.
package osfs

import "github.com/penstock-io/penstock/vfs"

// New returns the file system of the operating system. It holds no state and is safe for concurrent
// use.
//
// On Linux, Rename and RenameNew are atomic, even between two directories that are being renamed
// themselves. If the file system lacks renameat2's RENAME_NOREPLACE (NFS), RenameNew makes a hard
// link and removes the old name, as vfs.OS does. Info has the birth time if the file system stores
// one. Files implement [vfs.GatherWriter], [vfs.Reserver] and [vfs.WriteBacker].
func New() vfs.FS { return system() }
