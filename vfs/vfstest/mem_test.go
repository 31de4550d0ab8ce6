package vfstest

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

// TestRenameWhileOpen checks that an open file reads its current path under the lock while another
// goroutine renames it. Only the race detector can detect the fault.
func TestRenameWhileOpen(t *testing.T) {
	m := New()
	d, err := m.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.OpenFile("a", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	uses := []func() error{
		func() error { _, err := f.Write([]byte("x")); return err },
		func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		func() error { _, err := f.Seek(0, 0); return err },
		func() error { _, err := f.Read(make([]byte, 1)); return err },
		func() error { _, err := f.Stat(); return err },
		func() error { return f.Truncate(1) },
		f.Sync,
	}
	var renames sync.WaitGroup
	renames.Go(func() {
		for range 100 {
			if err := errors.Join(d.Rename("a", d, "b"), d.Rename("b", d, "a")); err != nil {
				t.Error(err)
			}
		}
	})
	for range 100 {
		for i, use := range uses {
			if err := use(); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
	}
	renames.Wait()
	if err := d.Rename("a", d, "c"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	calls := m.Calls()
	if last := calls[len(calls)-1]; last.Op != OpSync || last.Path != "/c" {
		t.Errorf("the last call is %v, want the sync of /c", last)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestInABubble checks that modification times come from the virtual clock of testing/synctest.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		m.SetClock(time.Now)
		start := time.Now()
		time.Sleep(time.Hour)
		if err := m.WriteFile("/f", []byte("text")); err != nil {
			t.Fatal(err)
		}
		d, err := m.OpenDir("/")
		if err != nil {
			t.Fatal(err)
		}
		if info, err := d.Stat("f"); err != nil || info.ModTime.Sub(start) != time.Hour {
			t.Errorf("modified %v after the start, %v; want 1h", info.ModTime.Sub(start), err)
		}
	})
}
