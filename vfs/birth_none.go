//go:build !darwin && !(linux && (amd64 || arm64))

package vfs

import (
	"io/fs"
	"os"
	"time"
)

func birthOf(*os.File, fs.FileInfo) time.Time { return time.Time{} }

func birthAt(*os.File, string, fs.FileInfo) time.Time { return time.Time{} }
