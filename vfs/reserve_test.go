//go:build linux && (amd64 || arm64)

package vfs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestReserve: the length stays, the room is there, and Truncate to the same length gives it back.
func TestReserve(t *testing.T) {
	d, root := open(t)
	f, err := d.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("some bytes")); err != nil {
		t.Fatal(err)
	}
	const room = 4 << 20
	if !vfs.Reserve(f, 10, room) {
		t.Skip("the file system of the temporary folder reserves no room")
	}
	held := func() (length, bytes int64) {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(root, "f"), &st); err != nil {
			t.Fatal(err)
		}
		return st.Size, st.Blocks * 512
	}
	if length, bytes := held(); length != 10 || bytes < room {
		t.Errorf("reserved %d bytes behind 10: length %d with %d bytes of disk", room, length, bytes)
	}
	if err := f.Truncate(10); err != nil {
		t.Fatal(err)
	}
	if length, bytes := held(); length != 10 || bytes >= room {
		t.Errorf("after Truncate to its length: length %d with %d bytes of disk", length, bytes)
	}
	if vfs.Reserve(f, 0, 0) {
		t.Error("Reserve of nothing says that it did something")
	}
}

// TestReserveElsewhere: a file that is none of the system's has no room to reserve.
func TestReserveElsewhere(t *testing.T) {
	d, err := vfstest.New().MakeDir("/d", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if vfs.Reserve(f, 0, 1<<20) {
		t.Error("a file in memory has reserved room of a disk")
	}
}
