package spooldir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/vfs"
)

// maxDepth is the maximum depth of subdirectories that are listed.
const maxDepth = 64

// place lists the files of a source: those in the directory, and those in move_to if finished files
// are moved.
type place struct{ s *source }

// List implements follow.Place. It calls found with each file to read, and refused with each
// skipped entry.
func (p place) List(found func(follow.Listed), refused func(label, why string)) error {
	var awaiting map[string]vfs.Info
	if p.s.o.Finished != finishedKeep {
		awaiting = p.s.finisher.Awaiting()
	}
	return p.list(".", 0, awaiting, found, refused)
}

// list calls the function found for each wanted file in the directory with the given name, and
// below it. The map awaiting has files that wait to be finished. For these files, list takes the
// file information from the map and calls no stat.
func (p place) list(
	name string, depth int, awaiting map[string]vfs.Info, found func(follow.Listed), refused func(label, why string),
) error {
	entries, err := p.s.dir.Entries(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(name, e.Name)
		switch {
		case e.Type.IsDir():
			if !p.s.o.Recursive || hidden(e.Name) {
				continue
			}
			if depth >= maxDepth {
				refused(full, "it is nested too deeply")
				continue
			}
			if err := p.list(full, depth+1, awaiting, found, refused); err != nil && !errors.Is(err, fs.ErrNotExist) {
				refused(full, fmt.Sprintf("the directory cannot be listed: %v", err))
				p.s.h.Fault(fmt.Errorf("list directory %q: %w", full, err))
			}
		case !p.s.names.wanted(full):
		case !e.Type.IsRegular():
			refused(full, follow.Kind(e.Type))
		default:
			var err error
			info, known := awaiting[full]
			if !known {
				info, err = p.s.dir.Stat(full)
			}
			if err == nil && info.Mode.IsRegular() {
				found(follow.Listed{Dir: p.s.dir, Name: full, Label: full, Info: info})
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				refused(full, err.Error())
				p.s.h.Fault(fmt.Errorf("file %q: %w", full, err))
			}
		}
	}
	return nil
}

// Finished implements follow.Place. It calls the function found for each file that has the suffix
// of finished files, and for each file in move_to. With recursive, this includes files in
// subdirectories.
func (p place) Finished(found func(follow.Listed)) error {
	depth := 0
	if p.s.o.Recursive {
		depth = maxDepth
	}
	in := func(dir vfs.Dir) func(string, vfs.Info) {
		return func(name string, info vfs.Info) {
			found(follow.Listed{Dir: dir, Name: name, Label: name, Info: info})
		}
	}
	err := follow.FindRegular(p.s.dir, ".", depth, p.s.names.done, in(p.s.dir))
	if err == nil && p.s.moved != nil {
		every := func(string) bool { return true }
		err = follow.FindRegular(p.s.moved, ".", depth, every, in(p.s.moved))
	}
	return err
}

// FolderMissing implements follow.Place. It reports whether the directory of a file is
// missing and may come back, such as an unmounted volume.
func (p place) FolderMissing(label string, dev uint64) bool {
	return follow.IsFolderMissing(p.s.dir, path.Dir(label), dev)
}
