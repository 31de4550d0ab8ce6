package follow

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// Rooted is an optional part of a Place that tells files that are gone from files whose folder is
// not there: one that is mounted late, or was renamed for a while. What was read of those is kept,
// however long it takes.
type Rooted interface {
	// Away says whether the folder that held a file on a device is not there, by the file's label; see
	// AwayBeneath.
	Away(label string, dev uint64) bool
}

// AwayBeneath says whether folder, beneath the source's own dir, is not there but may come back:
// there is nothing in what is there of its path, but maybe names that begin with a dot, such as a
// source's lock, and it lies on another device than dev. So looks the folder on which a file system
// is to be mounted. One that cannot be looked at is away, too; one that was deleted from a folder
// with anything in it is not, nor is one that was merely emptied.
func AwayBeneath(dir vfs.Dir, folder string, dev uint64) bool {
	for {
		info, err := dir.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) && folder != "." {
			folder = path.Dir(folder)
			continue
		}
		if err != nil {
			return true
		}
		if info.Dev == dev {
			return false
		}
		entries, err := dir.Entries(folder)
		return err != nil || !slices.ContainsFunc(entries, func(e vfs.Entry) bool { return !strings.HasPrefix(e.Name, ".") })
	}
}

// folders is what the listing under way has found of folders in which files are missing.
type folders struct {
	scan uint32
	away map[folderOn]bool
}

type folderOn struct {
	folder string
	dev    uint64
}

// isAway says whether the folder of a file that is missing is not there itself.
func (r *Reader) isAway(label string, dev uint64) bool {
	p, ok := r.s.place.(Rooted)
	if !ok {
		return false
	}
	if r.folders.scan != r.scans || r.folders.away == nil {
		r.folders = folders{scan: r.scans, away: make(map[folderOn]bool)}
	}
	of := folderOn{path.Dir(label), dev}
	away, known := r.folders.away[of]
	if !known {
		away = p.Away(label, dev)
		r.folders.away[of] = away
		if away {
			r.refuse(of.folder, "the folder is not there, or nothing is mounted on it; what was read of its files is kept until it is")
		}
	}
	return away
}

// markAway is isAway of a partition that the route has stored, whose data lies at key.
func (r *Reader) markAway(id string, key fileid.Key) bool {
	m, ok := r.resume(id)
	return ok && r.isAway(m.Part.Name, key.Dev)
}

// heldAway looks whether the folders of what is waited for are there: until they are, nothing is
// given up. Files of earlier runs are recognised before any other when a folder comes, as at the
// start.
func (r *Reader) heldAway() {
	was := r.rotated.away
	r.rotated.away = false
	now := r.s.now()
	hold := func(f *file, dev uint64) {
		if was, is := f.isAway(), r.isAway(f.label, dev); was || is { // its folder has come now, or is still to come
			f.rare().away = is
			f.held = max(f.held, now+r.grow.CopyWait)
			r.rotated.away = r.rotated.away || is
		}
	}
	for e, w := range r.rotated.widows {
		hold(w, r.s.idOf(e).Dev)
	}
	for _, f := range r.rotated.strays {
		hold(f, f.info.Dev)
	}
	if was {
		r.meetKnown()
	}
}

func (f *file) isAway() bool { return f.aside != nil && f.aside.away }

// waited is how many files are waited for whose folders are there.
func (t *rotated) waited() (n int) {
	for _, w := range t.widows {
		if !w.isAway() {
			n++
		}
	}
	return n
}
