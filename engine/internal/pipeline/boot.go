package pipeline

import (
	"os"
	"strings"
)

// bootID identifies this run of the operating system. A crash of the system loses data that was
// written but not synced. Progress that was not synced is therefore used only if it was saved with
// the same boot id. If the system has no boot id, bootID returns "", and only synced progress is
// used.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
