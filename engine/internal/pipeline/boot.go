package pipeline

import (
	"os"
	"strings"
)

// Boot returns the boot id, which identifies this run of the operating system. The run ends with a
// crash or restart of the machine. A crash of the machine loses data that was written but not
// synced. So progress that was saved before the sink had synced the data is valid only under the
// boot id with which it was saved. If the system has no boot id, Boot returns "". Progress is then
// saved only after a sync of the sink.
func Boot() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
