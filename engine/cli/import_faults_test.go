package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// twoFiles is the progress of two pipelines. The first one has two routes.
func twoFiles() ([]migrate.Progress, []migrate.Carried) {
	mark := func(id string, at int64) stream.Mark {
		return stream.Mark{Part: stream.Partition{ID: id}, Watermark: stream.Position{Num: at}}
	}
	return []migrate.Progress{{Pipeline: "p", Routes: []string{"a", "b"}},
			{Pipeline: "q", Routes: []string{"main"}}},
		[]migrate.Carried{{Marks: []stream.Mark{mark("f", 5)}, Begun: []stream.Mark{mark("g", 0)}},
			{Marks: []stream.Mark{mark("h", 7)}}}
}

// positionsIn returns the positions in the imported checkpoint, or "" if there is no checkpoint.
func positionsIn(t *testing.T, m *vfstest.Mem) string {
	t.Helper()
	dir, err := m.OpenDir("/state")
	if err != nil {
		return ""
	}
	defer dir.Close()
	if _, err := dir.Stat(checkpoint.Name); err != nil {
		return ""
	}
	snap, report, err := checkpoint.Read(dir)
	if err != nil || report.Damage != "" || report.Cut > 0 {
		t.Fatalf("checkpoint: %v, %v", report, err)
	}
	var all []string
	for _, r := range snap.Routes {
		for _, m := range r.Marks {
			all = append(all, fmt.Sprintf("%s:%s@%d", r.Route, m.Part.ID, m.Watermark.Num))
		}
	}
	return strings.Join(all, " ")
}

const allImported = "p/a:f@5 p/a:g@0 p/b:f@5 p/b:g@0 q/main:h@7"

// TestImportCrash kills an import after each call to the file system, and lets each call fail. There
// must be either no checkpoint or a complete one, because an import keeps an existing checkpoint.
// Without a checkpoint, the next import must succeed.
func TestImportCrash(t *testing.T) {
	progress, carried := twoFiles()
	again := func(what string, m *vfstest.Mem) {
		t.Helper()
		if got := positionsIn(t, m); got != "" && got != allImported {
			t.Fatalf("%s: the checkpoint has %q", what, got)
		} else if got == "" {
			if kept, err := keepMarks(m, "/state", progress, carried); err != nil || !kept {
				t.Fatalf("%s: import again: %v", what, err)
			}
		}
		if got := positionsIn(t, m); got != allImported {
			t.Fatalf("%s: after the next import the checkpoint has %q", what, got)
		}
	}
	for c := range vfstest.CrashesFrom(t, 1, vfstest.New(), func(m *vfstest.Mem) {
		if kept, err := keepMarks(m, "/state", progress, carried); err != nil || !kept {
			t.Error(kept, err)
		}
	}) {
		again(c.String(), c.FS)
	}
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		for n := 1; ; n++ {
			m := vfstest.New()
			m.Fail(vfstest.Fault{Nth: n, Lasting: true, Err: fault, Short: 7})
			kept, err := keepMarks(m, "/state", slices.Clone(progress), carried)
			if m.Heal() == 0 {
				break
			}
			what := fmt.Sprintf("%v at call %d", fault, n)
			if err == nil {
				t.Errorf("%s: no error", what)
			}
			message := new(importFlags).keepError(kept, "a and b", err).Error()
			want := "would not resume at the stored positions"
			if positionsIn(t, m) == allImported {
				want = "were imported, but may not survive a power loss"
			}
			if !strings.Contains(message, want) || !strings.Contains(message, fault.Error()) {
				t.Errorf("%s: %s; want %s", what, message, want)
			}
			again(what, m)
		}
	}
}

// TestImportFullDisk checks that a failed import leaves no config behind: the next import would
// refuse to overwrite it.
func TestImportFullDisk(t *testing.T) {
	m := vfstest.New()
	dir, err := m.MakeDir("/etc", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f := importFlags{out: "/etc/penstock.yaml"}
	m.Fail(vfstest.Fault{Op: vfstest.OpWrite, Err: syscall.ENOSPC, Short: 3})
	if err := f.write(m, nil, "pipelines:"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want %v", err, syscall.ENOSPC)
	}
	m.Heal()
	if err := f.write(m, nil, "pipelines:"); err != nil {
		t.Errorf("the next import: %v", err)
	}
}
