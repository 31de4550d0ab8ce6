package osfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func TestLinux(t *testing.T) { vfstest.TestLinux(t, osfs.New()) }

func open(t *testing.T) (vfs.Dir, string) {
	t.Helper()
	root := t.TempDir()
	d, err := osfs.New().OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, root
}

func create(t *testing.T, d vfs.Dir, name, text string) vfs.File {
	t.Helper()
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestReserve checks that Reserve allocates space without changing the file's size. Truncate to the
// same size then releases the unused space.
func TestReserve(t *testing.T) {
	d, root := open(t)
	f := create(t, d, "f", "some bytes")
	const length = 4 << 20
	if !vfs.Reserve(f, 10, length) {
		t.Skip("the file system of the temporary directory does not reserve space")
	}
	want := func(moment string, reserved bool) {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(root, "f"), &st); err != nil {
			t.Fatal(err)
		}
		if st.Size != 10 || (st.Blocks*512 >= length) != reserved {
			t.Errorf("%s: size %d with %d bytes allocated", moment, st.Size, st.Blocks*512)
		}
	}
	want("after Reserve", true)
	if err := f.Truncate(10); err != nil {
		t.Fatal(err)
	}
	want("after Truncate", false)
}

func TestWriteBack(t *testing.T) {
	d, _ := open(t)
	f := create(t, d, "f", "some bytes")
	if !vfs.WriteBack(f, 0, 10) || !vfs.WriteBack(f, 4, 10) {
		t.Error("WriteBack of written bytes was not started")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if vfs.WriteBack(f, 0, 10) {
		t.Error("WriteBack of a closed file was started")
	}
}

// TestOpenRegular checks that OpenRegular refuses a symlink, directory or FIFO that has replaced a
// regular file after it was listed. OpenRegular must neither follow the symlink nor block on the
// FIFO.
func TestOpenRegular(t *testing.T) {
	d, root := open(t)
	create(t, d, "f", "some bytes")
	for name, make := range map[string]func(path string) error{
		"symlink":   func(path string) error { return os.Symlink("f", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		if err := make(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		if f, err := vfs.OpenRegular(d, name); !errors.Is(err, vfs.ErrNotRegular) {
			t.Errorf("%s: opened %v, %v", name, f, err)
		}
	}
	if _, err := vfs.OpenRegular(d, "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is missing: %v", err)
	}
	f, err := vfs.OpenRegular(d, "f")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || string(text) != "some bytes" {
		t.Errorf("read %q, %v", text, err)
	}
	if info, ok := f.(vfs.OpenStater).OpenInfo(); !ok || info.Size != 10 || info.Name != "f" {
		t.Errorf("opened %+v, %v", info, ok)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestBirth checks that the birth time of a file is not later than its modification time. It is
// skipped on file systems that do not store birth times.
func TestBirth(t *testing.T) {
	d, _ := open(t)
	f := create(t, d, "f", "")
	info, err := f.Stat()
	if err != nil || info.Birth.IsZero() {
		t.Skipf("the file system of the temporary directory keeps no birth time: %v", err)
	}
	if age := info.ModTime.Sub(info.Birth); age < 0 {
		t.Errorf("born %v after its last change", -age)
	}
}

// TestCloseDuringReads closes a file while other goroutines read it. Each read must return the
// file's bytes or fs.ErrClosed. It must never return bytes of another file that has got the same
// descriptor number.
func TestCloseDuringReads(t *testing.T) {
	d, _ := open(t)
	create(t, d, "mine", "mine")
	create(t, d, "else", "else")
	for range 20 {
		mine, err := d.Open("mine")
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		started := make(chan struct{}, 4)
		for range cap(started) {
			readers.Go(func() {
				p := make([]byte, 4)
				for i := 0; ; i++ {
					_, err := mine.ReadAt(p, 0)
					if i == 0 {
						started <- struct{}{}
					}
					if errors.Is(err, fs.ErrClosed) {
						return
					}
					if err != nil || string(p) != "mine" {
						t.Errorf("read %q, %v from a file that was closed meanwhile", p, err)
						return
					}
				}
			})
		}
		for range cap(started) {
			<-started
		}
		if err := mine.Close(); err != nil {
			t.Fatal(err)
		}
		other, err := d.Open("else")
		if err != nil {
			t.Fatal(err)
		}
		readers.Wait()
		if text, err := io.ReadAll(other); string(text) != "else" || err != nil {
			t.Fatalf("the other file holds %q, %v", text, err)
		}
		if err := errors.Join(other.Close()); err != nil {
			t.Fatal(err)
		}
		if err := mine.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("second Close: %v, want fs.ErrClosed", err)
		}
	}
}

// TestDescriptorsAreClosed checks that operations on names of several parts leave no descriptors
// open, even if they fail.
func TestDescriptorsAreClosed(t *testing.T) {
	d, root := open(t)
	count := func() int {
		t.Helper()
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("descriptors cannot be counted: %v", err)
		}
		return len(list)
	}
	if err := os.Symlink("a", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	before := count()
	for range 20 {
		sub, err := osfs.New().MakeDir(filepath.Join(root, "a", "b", "c"), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.MakeDir("a/b/c", 0o700)
		if err != nil {
			t.Fatal(err)
		}
		f, err := d.OpenFile("a/b/f", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := d.Lock("a/lock", "me")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = d.Lock("a/lock", "you")
		_, _ = d.Open("a/b/none/x")
		_, _ = d.Open("link/b/f")
		_, _ = d.OpenDir("link/b")
		_, _ = d.Stat("a/b/f")
		_, _ = d.Entries("a/b")
		_, _ = d.MakeDir("a/b/f/x", 0o700)
		_ = d.Rename("a/b/f", again, "g")
		_ = d.RenameNew("a/b/c/g", d, "a/b/f")
		_ = d.Rename("a/none", again, "x/y")
		_ = d.Remove("a/b/f")
		if err := errors.Join(sub.Close(), again.Close(), f.Close(), lock.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

func TestReadLink(t *testing.T) {
	d, root := open(t)
	long := ""
	for range 70 {
		long += "123456789/"
	}
	for name, target := range map[string]string{"short": "f", "long": long} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.(vfs.Linker).ReadLink(name); got != target || err != nil {
			t.Errorf("ReadLink(%s) = %q, %v; want %q", name, got, err, target)
		}
	}
}
