package vfs

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

func birthOf(_ *os.File, info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Birthtimespec.Sec, st.Birthtimespec.Nsec)
	}
	return time.Time{}
}

func birthAt(_ *os.File, _ string, info fs.FileInfo) time.Time { return birthOf(nil, info) }
