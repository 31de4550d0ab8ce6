package pipeline

import (
	"os"
	"strings"
)

// bootID identifies this run of the operating system. Data in the page cache does not survive a
// restart, so state is trusted without a sync only if it has the same boot id. The id is "" where
// the system has none; then only synced state is trusted.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
