//go:build linux && (amd64 || arm64)

package vfs_test

import (
	"os"
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestWriteBack: the system takes the wish for a file of its own, none for nothing, and none for a file in memory.
func TestWriteBack(t *testing.T) {
	real, _ := open(t)
	memory, err := vfstest.New().MakeDir("/d", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		dir      vfs.Dir
		from, to int64
		want     bool
	}{
		{"a file", real, 0, 10, true},
		{"its end", real, 4, 10, true},
		{"nothing", real, 10, 10, false},
		{"a file in memory", memory, 0, 10, false},
	} {
		f, err := c.dir.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("some bytes")); err != nil {
			t.Fatal(err)
		}
		if got := vfs.WriteBack(f, c.from, c.to); got != c.want {
			t.Errorf("%s: WriteBack says %t, want %t", c.name, got, c.want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
