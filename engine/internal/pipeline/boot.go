package pipeline

import (
	"os"
	"strings"
)

// bootID identifies this boot of the operating system. Data in the page cache does not survive a
// reboot. State that was not synced is therefore trusted only if it has the same boot id. If the
// system has no boot id, bootID returns "", and only synced state is trusted.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
