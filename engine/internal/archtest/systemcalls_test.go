package archtest

import (
	"strings"
	"testing"
)

// mayImportUnsafe lists the files, tests included, that may import unsafe, with the reasons.
var mayImportUnsafe = map[string]string{
	"stream/align_test.go":           "reads the alignment of a buffer",
	"vfs/lock_windows.go":            "passes a struct to LockFileEx, as vfs has no dependencies",
	"engine/kit/lines/lines_test.go": "reads the alignment of a buffer",
}

// mayCallSystem lists the files that may import syscall or golang.org/x/sys, with the reasons.
// Tests and package osfs may import them, too.
var mayCallSystem = map[string]string{
	"vfs/os.go":                                    "names of errors",
	"vfs/osdir.go":                                 "names of errors",
	"vfs/sys_unix.go":                              "flags of open",
	"vfs/inode_unix.go":                            "what package os keeps of stat",
	"vfs/birth_darwin.go":                          "what package os keeps of stat",
	"vfs/lock_unix.go":                             "flock, which package os lacks",
	"vfs/lock_windows.go":                          "LockFileEx, which package os lacks",
	"vfs/vfstest/conformance.go":                   "names of errors",
	"vfs/vfstest/dir.go":                           "names of errors",
	"vfs/vfstest/file.go":                          "names of errors",
	"vfs/vfstest/mem.go":                           "names of errors",
	"vfs/vfstest/hostile_linux.go":                 "FIFOs, devices and another user's permissions",
	"engine/cli/cli.go":                            "names of signals",
	"engine/internal/admin/client.go":              "names of errors",
	"engine/kit/diskspace/free_unix.go":            "free space of a disk",
	"engine/internal/deadletter/store.go":          "names of errors",
	"engine/internal/pipeline/engine.go":           "names of errors",
	"engine/internal/pipeline/since_boot_linux.go": "the clock that counts suspension",
	"engine/internal/cluster/clock_linux.go":       "leases expire while the system is suspended",
	"engine/kit/child/sys_bsd.go":                  "process groups",
	"engine/kit/child/sys_linux.go":                "process groups, bytes that a pipe holds",
	"engine/kit/child/sys_other.go":                "names of signals",
	"engine/kit/child/sys_unix.go":                 "process groups, and errors of a start",
	"engine/kit/egress/egress.go":                  "a type of net.Dialer",
	"engine/kit/follow/descriptors.go":             "names of errors",
	"engine/kit/follow/descriptors_unix.go":        "the limit of open files",
	"engine/kit/listen/datagrams.go":               "names of errors",
	"engine/kit/listen/streams.go":                 "names of errors",
}

func TestSystemCallsHaveTheirPlace(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range all(t) {
		for _, imported := range f.imports() {
			switch {
			case imported == "unsafe":
				seen[f.path] = true
				if mayImportUnsafe[f.path] == "" {
					t.Errorf("%s imports unsafe: use golang.org/x/sys, or list the file here with a reason", f.path)
				}
			case imported == "syscall" || strings.HasPrefix(imported, "golang.org/x/sys/"):
				seen[f.path] = true
				if !f.test && !f.under("engine/internal/osfs", "bench") &&
					mayCallSystem[f.path] == "" {
					t.Errorf("%s imports %s: files are the task of engine/internal/osfs; "+
						"list other uses here with a reason",
						f.path, imported)
				}
			}
		}
	}
	for _, list := range []map[string]string{mayImportUnsafe, mayCallSystem} {
		for path := range list {
			if !seen[path] {
				t.Errorf("%s no longer imports unsafe, syscall or golang.org/x/sys: remove it from the list", path)
			}
		}
	}
}
