package cli

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// cgroupMemory returns the memory limit of this process in bytes: the lowest memory.max of its
// cgroup and of the ancestors of this cgroup. root is the root of the file system. ok is false if
// there is no limit, or if there is no cgroup of version 2.
func cgroupMemory(root fs.FS) (limit int64, ok bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	group, found := "", false
	for line := range strings.Lines(string(text)) {
		if group, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			break // all other lines are of version 1
		}
	}
	if !found {
		return 0, false
	}
	limit = math.MaxInt64
	// In a container the path may begin with "..". Clean keeps it below the root.
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		if n, limited := memoryMax(root, dir); limited {
			limit, ok = min(limit, n), true
		}
		if dir == "/" {
			return limit, ok
		}
	}
}

// memoryMax returns the memory limit of one cgroup. ok is false if it has no limit.
func memoryMax(root fs.FS, group string) (limit int64, ok bool) {
	text, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", group, "memory.max"))
	if err != nil {
		return 0, false // the root cgroup has no limit
	}
	limit, err = strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // "max" is none
	return limit, err == nil && limit > 0
}

// followCgroup sets the memory limit of the Go runtime to a share of the cgroup's limit. Near its
// own limit, the runtime collects garbage more often. So the process usually stays below the
// cgroup's limit, above which the kernel would kill it. The argument set is debug.SetMemoryLimit,
// except in tests.
func followCgroup(root fs.FS, set func(limit int64) int64) {
	if limit, ok := cgroupMemory(root); ok {
		// The rest is for memory that the runtime does not count, such as page tables, kernel
		// stacks and child processes.
		set(limit / 10 * 9)
	}
}
