package vfstest

import (
	"io/fs"
	"testing"
)

func TestMemConforms(t *testing.T) {
	TestFS(t, func(t *testing.T) Harness {
		m := New()
		if _, err := m.MakeDir("/work/here", 0o700); err != nil {
			t.Fatal(err)
		}
		return Harness{FS: m, Root: "/work/here", Symlink: m.Symlink, FIFO: func(name string) error { return m.Special(name, fs.ModeNamedPipe) }}
	})
}
