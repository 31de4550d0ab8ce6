//go:build !darwin

package vfs

import (
	"io/fs"
	"time"
)

func birthOf(fs.FileInfo) time.Time { return time.Time{} }
