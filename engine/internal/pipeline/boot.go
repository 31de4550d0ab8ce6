package pipeline

import (
	"os"
	"strings"
)

// bootID names this run of the operating system, so that what was written to the page cache before
// a restart is not taken for what is on disk. "" where the system does not tell: then nothing is
// believed that was not synced.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
