package vfstest

import (
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

func testSymlinks(t *testing.T, b *bench) {
	if b.h.Symlink == nil {
		t.Skip("this file system has no symlinks")
	}
	b.mkdir(b.dir, "real")
	b.put(b.dir, "real/f", "text")
	for _, link := range [][2]string{
		{"real", "dir"}, {"real/f", "file"}, {"nothing", "dangling"}, {"f", "real/again"},
		{"..", "up"}, {"loop", "loop"},
	} {
		b.ok("Symlink", b.h.Symlink(link[0], b.path(link[1])))
	}
	for _, name := range []string{"file", "dangling", "real/again", "dir/f", "dir/again",
		"dir/none", "up/x", "loop", "loop/x", "dir"} {
		_, err := b.dir.Open(name)
		b.is("Open("+name+")", err, vfs.ErrNotRegular)
		if err != nil && !strings.Contains(err.Error(), "symlink") {
			b.Errorf("Open(%q): %v; want the word symlink in it", name, err)
		}
		_, err = b.dir.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
		b.is("OpenFile("+name+", create)", err, vfs.ErrNotRegular)
		_, err = b.dir.Lock(name, "us")
		b.is("Lock("+name+")", err, vfs.ErrNotRegular)
	}
	for _, name := range []string{"dir", "up", "loop", "dangling", "file", "dir/sub"} {
		_, err := b.dir.OpenDir(name)
		b.is("OpenDir("+name+")", err, vfs.ErrNotRegular)
		_, err = b.dir.MakeDir(name, 0o700)
		b.is("MakeDir("+name+")", err, vfs.ErrNotRegular)
		_, err = b.dir.Entries(name)
		b.is("Entries("+name+")", err, vfs.ErrNotRegular)
	}
	_, err := b.dir.Stat("dir/f")
	b.is("Stat(dir/f)", err, vfs.ErrNotRegular)
	b.is("Remove(dir/f)", b.dir.Remove("dir/f"), vfs.ErrNotRegular)
	b.is("Rename from dir/f", b.dir.Rename("dir/f", b.dir, "x"), vfs.ErrNotRegular)
	b.is("Rename to dir/f", b.dir.Rename("real/f", b.dir, "dir/x"), vfs.ErrNotRegular)
	info, err := b.dir.Stat("file")
	if err != nil || info.Mode&fs.ModeSymlink == 0 {
		b.Errorf("Stat(file) = %v, %v; want the symlink itself", info.Mode, err)
	}
	b.ok("Rename of a symlink", b.dir.Rename("file", b.dir, "moved"))
	b.ok("Remove of a symlink", b.dir.Remove("moved"))
	b.wantText(b.dir, "real/f", "text")
	_, err = b.dir.Stat("nothing")
	b.is("what a dangling symlink points to", err, fs.ErrNotExist)
	d, err := b.h.FS.OpenDir(b.path("dir"))
	b.ok("FS.OpenDir of a symlink: the path itself is the user's", err)
	b.wantText(d, "f", "text")
	b.ok("Close", d.Close())
	d, err = b.h.FS.MakeDir(b.path("dir/made/deep"), 0o700)
	b.ok("FS.MakeDir through a symlink", err)
	b.ok("Close", d.Close())
	if info, err := b.dir.Stat("real/made/deep"); err != nil || !info.Mode.IsDir() {
		b.Errorf("Stat(real/made/deep) = %v, %v; want a directory", info.Mode, err)
	}
}

func testNotRegular(t *testing.T, b *bench) {
	b.mkdir(b.dir, "sub")
	_, err := b.dir.Open("sub")
	b.is("Open of a directory", err, vfs.ErrNotRegular)
	if err != nil && !strings.Contains(err.Error(), "directory") {
		b.Errorf("Open of a directory: %v; want the word directory in it", err)
	}
	if b.h.FIFO == nil {
		t.Skip("this file system has no FIFOs")
	}
	b.ok("FIFO", b.h.FIFO(b.path("fifo")))
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
		_, err := b.dir.OpenFile("fifo", flag, 0o600) // must not block
		b.is("Open of a FIFO", err, vfs.ErrNotRegular)
		if err != nil && !strings.Contains(err.Error(), "FIFO") {
			b.Errorf("Open of a FIFO: %v; want the word FIFO in it", err)
		}
	}
	_, err = b.dir.OpenDir("fifo")
	if err == nil {
		b.Error("OpenDir of a FIFO: no error")
	}
	if _, err = b.h.FS.OpenDir(b.path("fifo")); err == nil {
		b.Error("FS.OpenDir of a FIFO: no error")
	}
	info, err := b.dir.Stat("fifo")
	if err != nil || info.Mode.Type() != fs.ModeNamedPipe {
		b.Errorf("Stat of a FIFO = %v, %v; want its type", info.Mode, err)
	}
}

func testStat(_ *testing.T, b *bench) {
	b.put(b.dir, "f", "12345")
	f, err := b.dir.Open("f")
	b.ok("Open", err)
	defer f.Close()
	named, err := b.dir.Stat("f")
	b.ok("Stat", err)
	open, err := f.Stat()
	b.ok("Stat of the open file", err)
	if named != open {
		b.Errorf("Stat by name %+v, of the open file %+v; want the same", named, open)
	}
	if named.Name != "f" || named.Size != 5 || !named.Mode.IsRegular() ||
		named.Mode.Perm()&0o077 != 0 || named.ModTime.IsZero() {
		b.Errorf("Stat = %+v; want f, 5 bytes, regular, 0600, a time", named)
	}
	b.put(b.dir, "g", "")
	other, err := b.dir.Stat("g")
	b.ok("Stat", err)
	if other.Ino == named.Ino && other.Ino != 0 || other.Dev != named.Dev {
		b.Errorf("two files have device, inode %d, %d and %d, %d", named.Dev, named.Ino, other.Dev,
			other.Ino)
	}
	b.ok("Rename", b.dir.Rename("f", b.dir, "h"))
	moved, err := b.dir.Stat("h")
	b.ok("Stat", err)
	if moved.Ino != named.Ino || !moved.Birth.Equal(named.Birth) {
		b.Errorf("Rename changed inode and birth: %+v, was %+v", moved, named)
	}
	self, err := b.dir.Stat(".")
	if err != nil || !self.Mode.IsDir() {
		b.Errorf("Stat(.) = %+v, %v; want a directory", self, err)
	}
	_, err = b.dir.Stat("none")
	b.is("Stat of nothing", err, fs.ErrNotExist)
	b.ok("Remove", b.dir.Remove("h"))
	if open, err = f.Stat(); err != nil || open.Links != 0 && named.Links != 0 {
		b.Errorf("Stat of a removed file that is open: %d links, %v; want 0", open.Links, err)
	}
}

func testEntries(_ *testing.T, b *bench) {
	list, err := b.dir.Entries(".")
	if err != nil || len(list) != 0 {
		b.Errorf("Entries of an empty directory = %v, %v", list, err)
	}
	want := []vfs.Entry{{Name: "a"}, {Name: "b"}, {Name: "sub", Type: fs.ModeDir}}
	b.put(b.dir, "b", "")
	b.put(b.dir, "a", "")
	b.mkdir(b.dir, "sub")
	b.put(b.dir, "sub/c", "")
	if b.h.Symlink != nil {
		b.ok("Symlink", b.h.Symlink("a", b.path("zlink")))
		want = append(want, vfs.Entry{Name: "zlink", Type: fs.ModeSymlink})
	}
	for range 2 { // the second time with the same result
		list, err = b.dir.Entries(".")
		if err != nil || !slices.Equal(sorted(list), want) {
			b.Errorf("Entries = %v, %v; want %v", list, err, want)
		}
	}
	list, err = b.dir.Entries("sub")
	if err != nil || len(list) != 1 || list[0].Name != "c" {
		b.Errorf("Entries(sub) = %v, %v; want c", list, err)
	}
	if _, err = b.dir.Entries("a"); err == nil {
		b.Error("Entries of a file: no error")
	}
	_, err = b.dir.Entries("none")
	b.is("Entries of nothing", err, fs.ErrNotExist)
}

func testMakeDir(_ *testing.T, b *bench) {
	deep, err := b.h.FS.MakeDir(b.path("x/y/z"), 0o700)
	b.ok("FS.MakeDir", err)
	b.put(deep, "f", "deep")
	b.ok("Close", deep.Close())
	again := b.mkdir(b.dir, "x/y/z")
	b.wantText(again, "f", "deep")
	more := b.mkdir(b.dir, "x/more/still")
	b.put(more, "g", "")
	info, err := b.dir.Stat("x/y")
	if err != nil || info.Mode.Perm() != 0o700 {
		b.Errorf("Stat(x/y) = %v, %v; want 0700", info.Mode, err)
	}
	b.put(b.dir, "file", "")
	if _, err = b.dir.MakeDir("file", 0o700); err == nil {
		b.Error("MakeDir over a file: no error")
	}
	if _, err = b.dir.MakeDir("file/below", 0o700); err == nil {
		b.Error("MakeDir below a file: no error")
	}
	if _, err = b.h.FS.MakeDir(b.path("file/below"), 0o700); err == nil {
		b.Error("FS.MakeDir below a file: no error")
	}
}

func testRename(_ *testing.T, b *bench) {
	b.put(b.dir, "a", "of a")
	b.put(b.dir, "b", "of b")
	b.ok("Rename", b.dir.Rename("a", b.dir, "b"))
	b.wantText(b.dir, "b", "of a")
	_, err := b.dir.Stat("a")
	b.is("Stat of the old name", err, fs.ErrNotExist)
	b.is("Rename of nothing", b.dir.Rename("a", b.dir, "c"), fs.ErrNotExist)
	b.is("Rename into nothing", b.dir.Rename("b", b.dir, "none/c"), fs.ErrNotExist)
	b.ok("Rename onto itself", b.dir.Rename("b", b.dir, "b"))
	b.wantText(b.dir, "b", "of a")
	b.mkdir(b.dir, "sub")
	if err := b.dir.Rename("b", b.dir, "sub"); err == nil {
		b.Error("Rename of a file over a directory: no error")
	}
	b.ok("Rename of a directory", b.dir.Rename("sub", b.dir, "moved"))
	b.ok("Rename into it", b.dir.Rename("b", b.dir, "moved/b"))
	b.wantText(b.dir, "moved/b", "of a")
	b.ok("Sync", b.dir.Sync())
}

func testRenameBetween(_ *testing.T, b *bench) {
	from, to := b.mkdir(b.dir, "from"), b.mkdir(b.dir, "to")
	b.put(from, "a", "one")
	b.put(to, "b", "two")
	b.ok("Rename", from.Rename("a", to, "b"))
	b.wantText(b.dir, "to/b", "one")
	b.ok("Rename back, by a longer name", b.dir.Rename("to/b", from, "c"))
	b.wantText(from, "c", "one")
	b.ok("RenameNew", from.RenameNew("c", to, "d"))
	b.wantText(to, "d", "one")
	b.put(from, "e", "three")
	b.is("RenameNew onto what is there", from.RenameNew("e", to, "d"), fs.ErrExist)
	b.wantText(to, "d", "one")
	b.wantText(from, "e", "three")
	b.ok("Sync", from.Sync())
	b.ok("Sync", to.Sync())
}

func testRenameNew(_ *testing.T, b *bench) {
	b.put(b.dir, "a", "of a")
	b.put(b.dir, "b", "of b")
	b.mkdir(b.dir, "sub")
	b.is("RenameNew onto a file", b.dir.RenameNew("a", b.dir, "b"), fs.ErrExist)
	b.is("RenameNew onto a directory", b.dir.RenameNew("a", b.dir, "sub"), fs.ErrExist)
	b.is("RenameNew onto itself", b.dir.RenameNew("a", b.dir, "a"), fs.ErrExist)
	if b.h.Symlink != nil {
		b.ok("Symlink", b.h.Symlink("nothing", b.path("link")))
		b.is("RenameNew onto a dangling symlink", b.dir.RenameNew("a", b.dir, "link"), fs.ErrExist)
	}
	b.wantText(b.dir, "a", "of a")
	b.wantText(b.dir, "b", "of b")
	b.ok("RenameNew", b.dir.RenameNew("a", b.dir, "c"))
	b.wantText(b.dir, "c", "of a")
	_, err := b.dir.Stat("a")
	b.is("Stat of the old name", err, fs.ErrNotExist)
	b.is("RenameNew of nothing", b.dir.RenameNew("a", b.dir, "d"), fs.ErrNotExist)
	b.ok("RenameNew of a directory", b.dir.RenameNew("sub", b.dir, "moved"))
}

func testRenameOpen(_ *testing.T, b *bench) {
	b.put(b.dir, "a", "first")
	f, err := b.dir.OpenFile("a", os.O_RDWR|os.O_APPEND, 0)
	b.ok("OpenFile", err)
	defer f.Close()
	b.ok("Rename", b.dir.Rename("a", b.dir, "b"))
	b.put(b.dir, "a", "other")
	_, err = f.Write([]byte(" second"))
	b.ok("Write to the renamed file", err)
	b.wantText(b.dir, "b", "first second")
	b.wantText(b.dir, "a", "other")
}

func testRemove(_ *testing.T, b *bench) {
	b.put(b.dir, "a", "text")
	f, err := b.dir.Open("a")
	b.ok("Open", err)
	defer f.Close()
	b.ok("Remove", b.dir.Remove("a"))
	_, err = b.dir.Stat("a")
	b.is("Stat of the removed", err, fs.ErrNotExist)
	if got, err := io.ReadAll(f); string(got) != "text" || err != nil {
		b.Errorf("the removed file, still open, holds %q, %v; want text", got, err)
	}
	b.is("Remove of nothing", b.dir.Remove("a"), fs.ErrNotExist)
	b.mkdir(b.dir, "sub")
	b.put(b.dir, "sub/f", "")
	if err := b.dir.Remove("sub"); err == nil {
		b.Error("Remove of a directory that is not empty: no error")
	}
	b.ok("Remove", b.dir.Remove("sub/f"))
	b.ok("Remove of an empty directory", b.dir.Remove("sub"))
	b.ok("Sync", b.dir.Sync())
}

func testLock(_ *testing.T, b *bench) {
	first, err := b.dir.Lock(".lock", "pid 17 on here")
	b.ok("Lock", err)
	again, err := b.h.FS.OpenDir(b.h.Root)
	b.ok("OpenDir", err)
	defer again.Close()
	for _, d := range []vfs.Dir{b.dir, again} {
		_, err = d.Lock(".lock", "pid 18")
		b.is("second Lock", err, vfs.ErrLocked)
		if err != nil &&
			(!strings.Contains(err.Error(), "pid 17 on here") ||
				!strings.Contains(err.Error(), ".lock")) {
			b.Errorf("second Lock: %v; want the file and the holder in it", err)
		}
	}
	other, err := b.dir.Lock("other", "pid 17")
	b.ok("Lock of another name", err)
	b.ok("Close", other.Close())
	b.ok("Close", first.Close())
	next, err := again.Lock(".lock", "19")
	b.ok("Lock after the first was closed", err)
	_, err = b.dir.Lock(".lock", "")
	if err == nil || !strings.Contains(err.Error(), `"19"`) {
		b.Errorf("Lock held by a shorter text: %v; want it, and nothing of the longer one before",
			err)
	}
	b.ok("Close", next.Close())
	b.wantText(b.dir, ".lock", "19")
}
