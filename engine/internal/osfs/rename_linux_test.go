package osfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinkAndRemove tests the replacement for RENAME_NOREPLACE on file systems that lack it.
func TestLinkAndRemove(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	at := func(dir, name string) place {
		t.Helper()
		fd, err := openAt(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := place{fd: fd, last: name}
		t.Cleanup(p.close)
		return p
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantText := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
		}
	}
	put("a", "of a")
	if err := linkAndRemove(at(from, "a"), at(to, "b")); err != nil {
		t.Fatal(err)
	}
	wantText(filepath.Join(to, "b"), "of a")
	if _, err := os.Lstat(filepath.Join(from, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old name: %v, want fs.ErrNotExist", err)
	}
	put("c", "of c")
	if err := os.Mkdir(filepath.Join(from, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c", "sub"} {
		if err := linkAndRemove(at(from, name), at(to, "b")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("rename of %s onto an existing file: %v, want fs.ErrExist", name, err)
		}
	}
	wantText(filepath.Join(to, "b"), "of a")
	wantText(filepath.Join(from, "c"), "of c")
	if err := linkAndRemove(at(from, "none"), at(to, "d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of nothing: %v, want fs.ErrNotExist", err)
	}
	if err := linkAndRemove(at(from, "sub"), at(to, "d")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(to, "d")); err != nil || !info.IsDir() {
		t.Errorf("the directory was not renamed: %v", err)
	}
}
