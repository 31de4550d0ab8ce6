//go:build !linux

package child

import "os"

// unreadBytes cannot tell on this system.
func unreadBytes(*os.File) (bytes int, ok bool) { return 0, false }
