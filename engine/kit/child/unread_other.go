//go:build !linux

package child

import "os"

// unreadBytes is not supported on this system.
func unreadBytes(*os.File) (bytes int, ok bool) { return 0, false }
