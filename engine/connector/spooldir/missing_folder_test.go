package spooldir_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// unmounted is a file system that reports another device for directories than for files.
type unmounted struct{ vfs.FS }

func (u unmounted) OpenDir(name string) (vfs.Dir, error) {
	d, err := u.FS.OpenDir(name)
	return unmountedDir{d}, err
}

type unmountedDir struct{ vfs.Dir }

func (d unmountedDir) Stat(name string) (vfs.Info, error) {
	info, err := d.Dir.Stat(name)
	if info.Mode.IsDir() {
		info.Dev++
	}
	return info, err
}

// TestNotMounted checks a directory that is a mount point while its file system is not mounted. The
// directory is then empty, and on another device than its files were. The stored progress of these
// files must be kept without a time limit. If the files were deleted instead, their progress must
// be dropped.
func TestNotMounted(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  vfs.FS
		forget int
	}{{"not mounted", unmounted{connectortest.FS()}, 0}, {"emptied", connectortest.FS(), 2}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := t.TempDir()
				dir := filepath.Join(at, "spool")
				change := func(o *spooldir.Options) { o.Finished, o.Forget = "keep", time.Minute }
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"a.log", "b.log"} {
					if err := os.WriteFile(filepath.Join(dir, name), []byte("one\ntwo\n"),
						0o644); err != nil {
						t.Fatal(err)
					}
				}
				first := newFixture(t, dir, connectortest.FS(), change).open(false)
				first.pump(time.Minute)
				first.close()
				if len(first.store.marks) != 2 {
					t.Fatalf("%d marks, want 2", len(first.store.marks))
				}
				if err := os.Rename(dir, filepath.Join(at, "away")); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				second := newFixture(t, dir, c.files, change)
				second.store = first.store
				second.open(false)
				second.pump(5 * time.Minute)
				if gone := second.reader.(stream.PartitionTracker).Deleted(); len(gone) != c.forget {
					t.Errorf("%d partitions are forgotten, want %d", len(gone), c.forget)
				}
				second.close()
			})
		})
	}
}
