//go:build !linux

package child

import (
	"errors"
	"os"
)

// limit returns an error if a limit is set, because this system does not support limits.
func limit(_ int, s Spec) error {
	if s.Memory > 0 || s.CPU > 0 {
		return errors.New("memory and cpu limits of children need Linux")
	}
	return nil
}

// unreadBytes is not supported on this system.
func unreadBytes(*os.File) (bytes int, ok bool) { return 0, false }
