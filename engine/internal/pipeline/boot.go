package pipeline

import (
	"os"
	"strings"
)

// Boot returns the boot id, which identifies this run of the operating system. The run ends with a
// crash or restart of the machine. A crash of the machine loses data that was written but not
// synced. Progress that was not synced is therefore valid only under the boot id with which it was
// saved. If the system has no boot id, Boot returns "", and only synced progress is used.
func Boot() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
