package migrate

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

// Matching calls fn for each regular file whose path matches include but not exclude. The files are
// sorted by path. Relative globs of include are relative to the carrier's Base. A glob of exclude
// is compared with the whole path and with the file name. Files that cannot be opened are omitted.
func (c *Carrier) Matching(
	include, exclude []string,
	fn func(path string, f vfs.File) error,
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
		dir, f, err := c.open(path)
		if err != nil {
			continue
		}
		err = fn(path, f)
		if err = errors.Join(err, f.Close(), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}
