package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRenameWays(t *testing.T) {
	for _, test := range []struct {
		name string
		move func(*osDir, string, *osDir, string) error
		new  bool
	}{
		{"rename", renameBetween, false}, {"link and remove", linkAndRemove, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, to := openTemp(t), openTemp(t)
			check := func(err, want error) {
				t.Helper()
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
			}
			text := func(d *osDir, name, want string) {
				t.Helper()
				got, err := os.ReadFile(filepath.Join(d.path, name))
				if string(got) != want || err != nil {
					t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
				}
			}
			put(t, from, "a", "of a")
			check(test.move(from, "a", from, "b"), nil)
			text(from, "b", "of a")
			check(test.move(from, "b", to, "c"), nil)
			text(to, "c", "of a")
			check(test.move(from, "b", to, "d"), fs.ErrNotExist)
			put(t, from, "e", "of e")
			if test.new {
				check(test.move(from, "e", to, "c"), fs.ErrExist)
				text(from, "e", "of e")
				text(to, "c", "of a")
				check(os.Mkdir(filepath.Join(from.path, "sub"), 0o700), nil)
				check(test.move(from, "sub", to, "c"), fs.ErrExist)
				check(test.move(from, "sub", from, "sub2"), nil)
			} else {
				check(test.move(from, "e", to, "c"), nil)
				text(to, "c", "of e")
			}
		})
	}
}

// TestRenameByPathChecksThePath checks that a rename fails if its directory was moved away after it
// was opened, even if another directory has taken its place.
func TestRenameByPathChecksThePath(t *testing.T) {
	from, outer := openTemp(t), t.TempDir()
	path := filepath.Join(outer, "to")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	to, err := openOSDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := os.Rename(path, path+"-moved"); err != nil {
		t.Fatal(err)
	}
	put(t, from, "a", "text")
	for _, move := range []func(*osDir, string, *osDir, string) error{renameBetween,
		linkAndRemove} {
		if err := move(from, "a", to, "a"); err == nil {
			t.Error("rename into a directory that is gone from its path: no error")
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, move := range []func(*osDir, string, *osDir, string) error{renameBetween,
		linkAndRemove} {
		if err := move(from, "a", to, "a"); err == nil {
			t.Error("rename into a directory that was replaced: no error")
		}
	}
}

func openTemp(t *testing.T) *osDir {
	t.Helper()
	d, err := openOSDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func put(t *testing.T, d *osDir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.path, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
