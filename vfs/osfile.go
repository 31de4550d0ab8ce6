package vfs

import "os"

// osFile is a regular file of the operating system.
type osFile struct {
	*os.File
	name string // its last part
}

func (f *osFile) Stat() (Info, error) { return statOf(f.File, f.name) }
