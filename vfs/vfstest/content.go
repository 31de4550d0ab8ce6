package vfstest

import (
	"io"
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
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
