package vfs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
)

// ValidName says whether name may be given to a [Dir]: parts joined by single slashes, none of them empty, "." or "..",
// no NUL byte. "." alone is the directory itself, which only Entries, Stat and OpenDir take. Other than io/fs.ValidPath
// it lets any bytes pass that a file name may have, valid UTF-8 or not. Whoever implements [Dir] checks with it.
func ValidName(name string) bool {
	if name == "." {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	if strings.ContainsRune(name, 0) {
		return false
	}
	if runtime.GOOS == "windows" && strings.ContainsAny(name, `\:`) {
		return false
	}
	return filepath.IsLocal(name)
}

// CheckName returns the error of operation op for a name that is not valid, else nil. dirOK lets "." pass.
func CheckName(op, name string, dirOK bool) error {
	if !ValidName(name) || name == "." && !dirOK {
		const rule = "a name stays beneath the directory: no slash before it, no part that is empty, . or .."
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("%s: %w", rule, fs.ErrInvalid)}
	}
	return nil
}

// NotRegular returns the error of operation op on name whose part part is of type mode where something else is wanted:
// errors.Is ErrNotRegular.
func NotRegular(op, name, part string, mode fs.FileMode) error {
	what := "a " + kind(mode)
	if part != name {
		what = fmt.Sprintf("%q in it is %s", part, what)
	} else {
		what = "it is " + what
	}
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("%s: %w", what, ErrNotRegular)}
}

// kind names the type of a file for people.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeNamedPipe != 0:
		return "FIFO"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
