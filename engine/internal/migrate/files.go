package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/vfs"
)

// maxFiles is the maximum number of files that may match one glob.
const maxFiles = 1_000_000

// Matching calls fn for each regular file whose path matches include but not exclude. The files are
// sorted by path. Relative globs of include are relative to the carrier's Base. A glob of exclude
// is compared with the whole path and with the file name. If a file cannot be opened, or a
// directory cannot be listed, Matching adds the error to c.Unreadable and continues.
func (c *Carrier) Matching(
	include, exclude []string,
	fn func(path string, f vfs.File) error,
) error {
	var all []string
	for _, glob := range include {
		list, err := c.files(c.Path(glob))
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	slices.Sort(all)
	for _, path := range slices.Compact(all) {
		excluded := func(glob string) bool {
			return MatchGlob(glob, path) || MatchGlob(glob, filepath.Base(path))
		}
		if slices.ContainsFunc(exclude, excluded) {
			continue
		}
		dir, f, err := c.open(path)
		if err != nil {
			c.addUnreadable(err)
			continue
		}
		err = fn(path, f)
		if err = errors.Join(err, f.Close(), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// addUnreadable adds an error to c.Unreadable, unless a file or directory does not exist.
func (c *Carrier) addUnreadable(err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		c.Unreadable = errors.Join(c.Unreadable, err)
	}
}

// files returns the regular files that match a glob, which must be absolute.
func (c *Carrier) files(glob string) ([]string, error) {
	re, err := regexp.Compile(globPattern(glob))
	if err != nil {
		return nil, err
	}
	root := glob
	if i := strings.IndexAny(root, `*?[{\`); i >= 0 {
		root = root[:i]
	}
	return c.filesBelow(filepath.Dir(root), glob, re)
}

// filesBelow returns the regular files in a directory, and in the directories below it, that match
// a glob. re is the regular expression of the glob.
func (c *Carrier) filesBelow(folder, glob string, re *regexp.Regexp) (paths []string, err error) {
	entries, err := c.entries(folder)
	if err != nil {
		c.addUnreadable(err)
		return nil, nil
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name)
		switch {
		case e.Type.IsDir() && mayContain(glob, path):
			below, err := c.filesBelow(path, glob, re)
			if err != nil {
				return nil, err
			}
			paths = append(paths, below...)
		case e.Type.IsRegular() && re.MatchString(path):
			paths = append(paths, path)
		}
		if len(paths) > maxFiles {
			return nil, fmt.Errorf("too many files match %s", glob)
		}
	}
	return paths, nil
}

func (c *Carrier) entries(folder string) (entries []vfs.Entry, err error) {
	dir, err := c.Files.OpenDir(folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Entries(".")
}
