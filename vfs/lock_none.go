//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package vfs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

func takeLock(*os.File) error {
	return fmt.Errorf("%s has no lock that ends with its process: %w", runtime.GOOS,
		errors.ErrUnsupported)
}
