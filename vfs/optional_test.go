package vfs_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestFilesWithoutOptionalParts checks that WriteParts works on files that are no GatherWriter, and
// that the other optional functions return false.
func TestFilesWithoutOptionalParts(t *testing.T) {
	vfstest.TestWriteParts(t, vfs.OS(), t.TempDir())
	vfstest.TestWriteParts(t, vfstest.New(), "/")
	for name, system := range map[string]vfs.FS{"system": vfs.OS(), "memory": vfstest.New()} {
		dir, err := system.MakeDir(t.TempDir(), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		f, err := dir.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if vfs.Reserve(f, 0, 1<<20) || vfs.WriteBack(f, 0, 10) {
			t.Errorf("%s: Reserve or WriteBack reports success for a file that has no such method",
				name)
		}
	}
}

// optionalFile counts the calls of the optional methods.
type optionalFile struct {
	vfs.File
	calls int
	err   error
}

func (f *optionalFile) WriteParts([][]byte) error     { f.calls++; return f.err }
func (f *optionalFile) Reserve(from, n int64) error   { f.calls++; return f.err }
func (f *optionalFile) WriteBack(from, n int64) error { f.calls++; return f.err }

func TestOptionalParts(t *testing.T) {
	f := &optionalFile{}
	if err := vfs.WriteParts(f, nil); err != nil || !vfs.Reserve(f, 3, 1) ||
		!vfs.WriteBack(f, 3, 4) || f.calls != 3 {
		t.Errorf("the three methods were called %d times, or their success was not reported",
			f.calls)
	}
	if vfs.Reserve(f, 3, 0) || vfs.WriteBack(f, 3, 3) || f.calls != 3 {
		t.Errorf("an empty range was asked for, or reported as success")
	}
	f.err = io.ErrShortWrite
	if err := vfs.WriteParts(f, nil); !errors.Is(err, f.err) || vfs.Reserve(f, 3, 1) ||
		vfs.WriteBack(f, 3, 4) {
		t.Errorf("an error was not reported: WriteParts returned %v", err)
	}
}
