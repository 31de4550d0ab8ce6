package vfs_test

import (
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// TestInABubble checks that files of the operating system work in the virtual time of
// testing/synctest.
func TestInABubble(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		dir, err := vfs.OS().OpenDir(path)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		f, err := dir.OpenFile("a.tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write([]byte("text")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := dir.Rename("a.tmp", dir, "a"); err != nil {
			t.Fatal(err)
		}
		if err := dir.Sync(); err != nil {
			t.Fatal(err)
		}
		g, err := dir.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if text, err := io.ReadAll(g); err != nil || string(text) != "text" {
			t.Errorf("read %q, %v", text, err)
		}
	})
}
