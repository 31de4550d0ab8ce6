package endtoend

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestMountedAgain mounts a file system several times with different device numbers, as after a
// reboot. Files must not be read again, and files that were rotated while the file system was not
// mounted must be found again.
func TestMountedAgain(t *testing.T) {
	disk := newLoopDisk(t)
	dir := filepath.Dir(disk.at)
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  logs:
    source: { tail: { include: ["%[1]s/logs/*.log*"], copy_wait: 100ms } }
    sink: { sqlite: { path: ./logs.db, table: lines } }
  spool:
    source: { spool_dir: { path: %[1]s/spool, finished: keep, quiet_period: 1ms } }
    sink: { sqlite: { path: ./spool.db, table: lines } }
`, disk.at))
	want := map[string][]string{}
	add := func(pipeline, name string, lines int) {
		var text strings.Builder
		for i := range lines {
			line := fmt.Sprintf("line %d of %d in %s of %s", i, len(want[pipeline]), name, pipeline)
			want[pipeline] = append(want[pipeline], line)
			fmt.Fprintln(&text, line)
		}
		path := filepath.Join(disk.at, pipeline, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		appendText(t, path, text.String())
	}
	var devices []uint64
	for round := range 3 {
		disk.mount(t)
		devices = append(devices, disk.device(t))
		if round > 0 {
			for _, p := range once(t, config).Pipelines {
				if p.ReadRecords != 0 {
					t.Errorf("mount %d: %s: %d records were read again", round, p.Pipeline,
						p.ReadRecords)
				}
			}
			rename(t, filepath.Join(disk.at, "logs", "a.log"),
				filepath.Join(disk.at, "logs", fmt.Sprintf("a.log.%d", round)))
		}
		add("logs", "a.log", 30)
		add("logs", "b.log", 10)
		add("spool", fmt.Sprintf("%d.log", round), 20)
		once(t, config)
		for pipeline, lines := range want {
			wantRows(t, filepath.Join(dir, pipeline+".db"), lines)
		}
		disk.unmount(t)
	}
	slices.Sort(devices)
	if devices = slices.Compact(devices); len(devices) != 3 {
		t.Errorf("the device numbers were %v: the test has tried nothing", devices)
	}
}

// wantRows compares the messages of a table, in any order.
func wantRows(t *testing.T, path string, want []string) {
	t.Helper()
	db := connectortest.OpenSQLite(t, path)
	defer db.Close()
	rows, err := db.Query("SELECT message FROM lines")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var have []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		have = append(have, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	want = slices.Sorted(slices.Values(want))
	if slices.Sort(have); !slices.Equal(have, want) {
		t.Errorf("%s has %d lines, want %d:\n%s\nwant\n%s", path, len(have), len(want),
			strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// loopDisk is a file system in a file, which gets another loop device for each mount.
type loopDisk struct {
	image, at string
	used      []string // loop devices of this test; the last one is mounted
	mounted   bool
}

// newLoopDisk creates a file system, or skips the test if that is not possible.
func newLoopDisk(t *testing.T) *loopDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root may mount")
	}
	dir := t.TempDir()
	d := &loopDisk{image: filepath.Join(dir, "image"), at: filepath.Join(dir, "mounted")}
	if err := os.Mkdir(d.at, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, d.image, "")
	if err := os.Truncate(d.image, 32<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.close(t) })
	if err := run("mkfs.ext4", "-q", "-F", d.image); err != nil {
		t.Skipf("skipped: %v", err)
	}
	if err := d.tryMount(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	d.unmount(t)
	return d
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// tryMount mounts the image with a loop device that this test has not used before. The used devices
// stay reserved, so that each mount has another device number.
func (d *loopDisk) tryMount() error {
	// do not reuse the last device; another process may have it by now
	if n := len(d.used); n > 0 {
		_ = run("losetup", "-r", d.used[n-1], d.image)
	}
	out, err := exec.Command("losetup", "-f", "--show", d.image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("losetup: %w\n%s", err, out)
	}
	d.used = append(d.used, strings.TrimSpace(string(out)))
	if err := run("mount", d.used[len(d.used)-1], d.at); err != nil {
		return err
	}
	d.mounted = true
	return nil
}

func (d *loopDisk) mount(t *testing.T) {
	t.Helper()
	if err := d.tryMount(); err != nil {
		t.Fatal(err)
	}
}

func (d *loopDisk) unmount(t *testing.T) {
	t.Helper()
	if err := run("umount", d.at); err != nil {
		t.Fatal(err)
	}
	d.mounted = false
	if err := run("losetup", "-d", d.used[len(d.used)-1]); err != nil {
		t.Fatal(err)
	}
}

// device returns the device number of the mounted file system.
func (d *loopDisk) device(t *testing.T) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(d.at, &st); err != nil {
		t.Fatal(err)
	}
	return uint64(st.Dev)
}

// close unmounts the file system and frees the loop devices.
func (d *loopDisk) close(t *testing.T) {
	if d.mounted {
		if err := run("umount", d.at); err != nil {
			t.Error(err)
		}
	}
	for _, device := range d.used {
		if out, err := exec.Command("losetup", device).Output(); err == nil &&
			strings.Contains(string(out), d.image) {
			if err := run("losetup", "-d", device); err != nil {
				t.Error(err)
			}
		}
	}
}
