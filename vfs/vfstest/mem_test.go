package vfstest

import (
	"io/fs"
	"testing"
)

func TestMemConforms(t *testing.T) {
	TestFS(t, func(t *testing.T) Harness {
		m := New()
		if _, err := m.MakeDir("/some/where", 0o700); err != nil {
			t.Fatal(err)
		}
		fifo := func(name string) error { return m.Special(name, fs.ModeNamedPipe) }
		return Harness{FS: m, Root: "/some/where", Symlink: m.Symlink, FIFO: fifo}
	})
}
