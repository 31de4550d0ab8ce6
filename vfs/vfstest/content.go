package vfstest

import (
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// Content returns the contents of a file, read through a new handle.
func Content(t testing.TB, dir vfs.Dir, name string) string {
	t.Helper()
	f, err := dir.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, info.Size)
	if _, err := f.ReadAt(text, 0); err != nil && info.Size > 0 {
		t.Fatal(err)
	}
	return string(text)
}
