package follow

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/vfs"
)

// IsFolderMissing reports whether folder, beneath the source's own dir, is missing but may come
// back. This is so in two cases:
//
//   - It, or the deepest existing folder of its path, cannot be read.
//   - The deepest existing folder of its path is empty and on another device than dev. A mount
//     point without its file system looks like this. Names that begin with a dot, such as a
//     source's lock, do not count.
//
// A folder deleted from a non-empty parent is not missing, and neither is an emptied one.
func IsFolderMissing(dir vfs.Dir, folder string, dev uint64) bool {
	for {
		info, err := dir.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) && folder != "." {
			folder = path.Dir(folder)
			continue
		}
		if err != nil {
			return true
		}
		entries, err := dir.Entries(folder)
		if err != nil || info.Dev == dev {
			return err != nil
		}
		return !slices.ContainsFunc(entries, func(e vfs.Entry) bool {
			return !strings.HasPrefix(e.Name, ".")
		})
	}
}

// folderOn is a folder of a missing file on the device dev.
type folderOn struct {
	folder string
	dev    uint64
}

// isFolderMissing reports whether the folder of a missing file is missing, too, but may come back.
func (l *lister) isFolderMissing(label string, dev uint64) bool {
	of := folderOn{path.Dir(label), dev}
	missing, known := l.folders[of]
	if !known {
		missing = l.c.place.FolderMissing(label, dev)
		l.folders[of] = missing
		if missing {
			l.refuse(of.folder, "the folder is not there, cannot be read, or nothing is mounted "+
				"on it; what was read of its files is kept until it is back")
		}
	}
	return missing
}

// holdMissingFolders checks whether the folders of awaiting files exist. As long as one is missing,
// its awaiting files are not given up. When a folder appears, files of earlier runs are recognised
// before any other, as at startup.
func (t *rotation) holdMissingFolders() {
	c, was := t.c, t.folderMissing
	t.folderMissing = false
	now := c.now()
	for w := range t.awaiting {
		// its folder has just appeared, or is still missing
		if was, is := w.isFolderMissing(), c.lister.isFolderMissing(w.label, t.inodeOf(w).Dev); was || is {
			w.ensureExtras().folderMissing = is
			w.heldUntil = max(w.heldUntil, now+c.o.Growing.CopyWait)
			t.folderMissing = t.folderMissing || is
		}
	}
	if was {
		c.identify.recogniseKnown()
	}
}

// FindRegular calls found with each regular file in a folder beneath dir if wanted accepts its
// name. It does the same in subfolders that are not hidden, down to the given depth. A missing
// folder counts as empty.
func FindRegular(
	dir vfs.Dir, folder string, depth int, wanted func(base string) bool, found func(name string, info vfs.Info),
) error {
	entries, err := dir.Entries(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name)
		if e.Type.IsDir() && depth > 0 && !strings.HasPrefix(e.Name, ".") {
			if err := FindRegular(dir, name, depth-1, wanted, found); err != nil {
				return err
			}
		}
		if !e.Type.IsRegular() || !wanted(e.Name) {
			continue
		}
		if info, err := dir.Stat(name); err == nil && info.Mode.IsRegular() {
			found(name, info)
		}
	}
	return nil
}
