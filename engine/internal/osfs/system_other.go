//go:build !linux

package osfs

import "github.com/penstock-io/penstock/vfs"

func system() vfs.FS { return vfs.OS() }
