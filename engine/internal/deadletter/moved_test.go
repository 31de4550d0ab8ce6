package deadletter_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestMoved checks that letters are written to the file with the store's path, even if another
// program has removed, renamed or replaced this file while the store is open.
func TestMoved(t *testing.T) {
	const name = "access.main.ndjson"
	for what, change := range map[string]func(dir vfs.Dir) error{
		"removed": func(dir vfs.Dir) error { return dir.Remove(name) },
		"renamed": func(dir vfs.Dir) error { return dir.Rename(name, dir, "old") },
		"replaced": func(dir vfs.Dir) error {
			f, err := dir.OpenFile("other", os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			return errors.Join(f.Close(), dir.Rename("other", dir, name))
		},
	} {
		t.Run(what, func(t *testing.T) {
			files := vfstest.New()
			s := open(t, files, 0)
			if err := s.Append(t.Context(), []deadletter.Letter{letter(1)}); err != nil {
				t.Fatal(err)
			}
			dir, err := files.OpenDir("/dead")
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			files.Fail(vfstest.Fault{Op: vfstest.OpOpen, Path: "access", Err: fs.ErrPermission})
			if err := s.Append(t.Context(), []deadletter.Letter{letter(2)}); err == nil {
				t.Error("Append returned nil, although the new file cannot be opened")
			}
			files.Heal()
			for n := 2; n <= 3; n++ {
				if err := s.Append(t.Context(), []deadletter.Letter{letter(n)}); err != nil {
					t.Fatal(err)
				}
			}
			lost := files.Crash(vfstest.DataNone, vfstest.NamesNone, 1)
			ids := idsIn(t, content(t, lost, path))
			if len(ids) != 2 || !ids["part@2"] || !ids["part@3"] {
				t.Errorf("the file has the letters %v, want part@2 and part@3", ids)
			}
		})
	}
}

// TestDirectoryMoved checks that Append fails if another program has removed, renamed or replaced
// the directory while the store is open. The next store with the same path must succeed.
func TestDirectoryMoved(t *testing.T) {
	const file = "access.main.ndjson"
	for what, change := range map[string]func(root, dir vfs.Dir) error{
		"removed": func(root, dir vfs.Dir) error {
			return errors.Join(dir.Remove(file), root.Remove("dead"))
		},
		"renamed": func(root, _ vfs.Dir) error { return root.Rename("dead", root, "old") },
		"replaced": func(root, _ vfs.Dir) error {
			if err := root.Rename("dead", root, "old"); err != nil {
				return err
			}
			dir, err := root.MakeDir("dead", 0o700)
			if err != nil {
				return err
			}
			return dir.Close()
		},
	} {
		t.Run(what, func(t *testing.T) {
			files := vfstest.New()
			s := open(t, files, 0)
			dir, errDir := files.OpenDir("/dead")
			root, errRoot := files.OpenDir("/")
			if err := errors.Join(errDir, errRoot); err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			defer root.Close()
			if err := change(root, dir); err != nil {
				t.Fatal(err)
			}
			letters := []deadletter.Letter{letter(1)}
			err := s.Append(t.Context(), letters)
			if err == nil || !strings.Contains(err.Error(), "renamed, removed or replaced") {
				t.Errorf("Append = %v, although the directory was moved", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s = open(t, files, 0)
			defer s.Close()
			if err := s.Append(t.Context(), letters); err != nil {
				t.Fatal(err)
			}
			lost := files.Crash(vfstest.DataNone, vfstest.NamesNone, 1)
			if ids := idsIn(t, content(t, lost, "/dead/"+file)); len(ids) != 1 || !ids["part@1"] {
				t.Errorf("the file has the letters %v, want part@1", ids)
			}
		})
	}
}

// TestTruncated checks that Append returns an error if another program has truncated the file.
func TestTruncated(t *testing.T) {
	files := vfstest.New()
	s := open(t, files, 0)
	if err := s.Append(t.Context(), []deadletter.Letter{letter(1)}); err != nil {
		t.Fatal(err)
	}
	dir, err := files.OpenDir("/dead")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := dir.OpenFile("access.main.ndjson", os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Truncate(0), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	err = s.Append(t.Context(), []deadletter.Letter{letter(2)})
	if err == nil || !strings.Contains(err.Error(), "another program truncated it") {
		t.Errorf("Append: %v", err)
	}
}

// TestMovedAfterFailedWrite checks that a letter is written once, and that the content of other
// files is kept, if another program moves the file after a write has failed halfway.
func TestMovedAfterFailedWrite(t *testing.T) {
	const name = "access.main.ndjson"
	for _, replaced := range []bool{false, true} {
		files := vfstest.New()
		s := open(t, files, 0)
		if err := s.Append(t.Context(), []deadletter.Letter{letter(1)}); err != nil {
			t.Fatal(err)
		}
		first := content(t, files, path)
		files.Fail(vfstest.Fault{Op: vfstest.OpSync, Path: "access", Err: syscall.EIO})
		if err := s.Append(t.Context(), []deadletter.Letter{letter(2)}); err == nil {
			t.Fatal("Append returned nil, although the write failed")
		}
		files.Heal()
		dir, err := files.OpenDir("/dead")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := dir.Rename(name, dir, "old"); err != nil {
			t.Fatal(err)
		}
		other := ""
		if replaced {
			other = strings.Repeat(strings.ReplaceAll(first, "part@1", "part@9"), 3)
			f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
			if err == nil {
				_, err = f.Write([]byte(other))
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Append(t.Context(), []deadletter.Letter{letter(2)}); err != nil {
			t.Fatal(err)
		}
		text := content(t, files, path)
		added, ok := strings.CutPrefix(text, other)
		if !ok || strings.Count(added, "\n") != 1 || !idsIn(t, added)["part@2"] {
			t.Errorf("replaced %t: the file has\n%swant\n%sand part@2", replaced, text, other)
		}
		if old := content(t, files, "/dead/old"); old != first {
			t.Errorf("replaced %t: the moved file has\n%swant\n%s", replaced, old, first)
		}
	}
}
