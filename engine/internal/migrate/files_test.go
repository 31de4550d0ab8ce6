package migrate_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/vfs"
)

// closedFS is a file system in which directories with the name "closed" cannot be opened.
type closedFS struct{ vfs.FS }

func (c closedFS) OpenDir(path string) (vfs.Dir, error) {
	if filepath.Base(path) == "closed" {
		return nil, &fs.PathError{Op: "open directory", Path: path, Err: fs.ErrPermission}
	}
	return c.FS.OpenDir(path)
}

// TestMatching checks which files match, and that a directory that cannot be read is reported only
// if it may contain such files.
func TestMatching(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{
		"a.log", "a.gz", "b/c/d.log", "closed/e.log", "x*y/f.log", "xzy/g.log",
	} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		include, exclude, want string // want: paths that match, separated by spaces
		unreadable             bool
	}{
		{"*.log", "", "a.log", false},
		{"**/*.log", "", "a.log b/c/d.log x*y/f.log xzy/g.log", true},
		{"**/*.log", "[a-e].log", "x*y/f.log xzy/g.log", true},
		{"*/*.log", "", "x*y/f.log xzy/g.log", true},
		{"*/*/*.log", "", "b/c/d.log", true},
		{"b/*/*.log", "", "b/c/d.log", false},
		{"b/**", "", "b/c/d.log", false},
		{"**", "", "a.gz a.log b/c/d.log x*y/f.log xzy/g.log", true},
		{"[!c]*/*.log", "", "x*y/f.log xzy/g.log", false},
		{"{b,closed}/**", "", "b/c/d.log", true},
		{`x\*y/*.log`, "", "x*y/f.log", false},
		{"missing/*.log", "", "", false},
	} {
		carrier := migrate.Carrier{Files: closedFS{osfs.New()}, Base: base}
		var exclude []string
		if c.exclude != "" {
			exclude = []string{c.exclude}
		}
		var got []string
		err := carrier.Matching([]string{c.include}, exclude, func(path string, _ vfs.File) error {
			rel, err := filepath.Rel(base, path)
			got = append(got, filepath.ToSlash(rel))
			return err
		})
		if err != nil || !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %q, %v; want %s", c.include, got, err, c.want)
		}
		closed := filepath.Join(base, "closed") + ": permission denied"
		if reported := carrier.Unreadable != nil; reported != c.unreadable {
			t.Errorf("%s: unreadable: %v", c.include, carrier.Unreadable)
		} else if reported && !strings.HasSuffix(carrier.Unreadable.Error(), closed) {
			t.Errorf("%s: %v; want %s", c.include, carrier.Unreadable, closed)
		}
	}
}
