package vfs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
)

// ValidName reports whether name is valid for a [Dir]: parts joined by single slashes, none of them
// empty, "." or "..", and no NUL byte. The name "." is the directory itself. Only Entries, Stat and
// OpenDir accept it. Unlike io/fs.ValidPath, ValidName accepts names that are not valid UTF-8. On
// Windows it also refuses backslashes, colons and reserved names. Implementations of [Dir] check
// names with [CheckName].
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

// CheckName returns nil if name is valid according to [ValidName], and otherwise the error of
// operation op. The name "." is valid only if dirOK is true.
func CheckName(op, name string, dirOK bool) error {
	if !ValidName(name) || name == "." && !dirOK {
		const rule = "a name stays beneath the directory: " +
			"no leading slash, no part that is empty, . or .."
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("%s: %w", rule, fs.ErrInvalid)}
	}
	return nil
}

// NotRegular returns the error of the operation op on the path name, for a file of the wrong type
// on this path. mode has the type of the file, and part is the element of name that leads to it.
// Example: for the name "logs/a", part is "logs" if logs is a symlink. The error wraps
// ErrNotRegular.
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
