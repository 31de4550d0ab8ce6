package migrate

import (
	"path/filepath"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

// Matching calls fn for each regular file whose path matches include but not exclude. The files are
// sorted by path. Relative globs of include are relative to the carrier's Base. A glob of exclude
// is compared with the whole path and with the file name. Files that cannot be opened are omitted.
func (c *Carrier) Matching(
	include, exclude []string,
	fn func(path string, dir vfs.Dir, f vfs.File) error,
) error {
	var all []string
	for _, glob := range include {
		list, err := files(c.Path(glob))
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
		if err := c.open(path, fn); err != nil {
			return err
		}
	}
	return nil
}

func (c *Carrier) open(path string, fn func(path string, dir vfs.Dir, f vfs.File) error) error {
	dir, err := c.Files.OpenDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	defer dir.Close()
	f, err := dir.Open(filepath.Base(path))
	if err != nil {
		return nil
	}
	defer f.Close()
	return fn(path, dir, f)
}
