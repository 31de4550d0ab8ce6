package tail

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/vfs"
)

// renewEvery is the interval at which the source checks whether the path of a root now leads to
// another folder. A root is the folder in which a glob is matched, such as /var/log for
// /var/log/*.log.
const renewEvery = time.Second

// place lists the files that match the patterns of the option include.
type place struct {
	o       Options
	exclude []string // the option exclude, with absolute paths
	roots   []*root
	fault   func(error) // called for files and folders that cannot be read

	mu      sync.Mutex // guards the fields below
	renewed time.Time
	visited []string // folders of the last listing; they are watched
}

func newPlace(o Options, files vfs.FS, fault func(error)) *place {
	p := &place{o: o, exclude: absoluteGlobs(o.Exclude), fault: fault}
	for _, pattern := range o.Include {
		at, g := rooted(filepath.ToSlash(filepath.Clean(pattern)))
		i := slices.IndexFunc(p.roots, func(r *root) bool { return r.path == at })
		if i < 0 {
			i = len(p.roots)
			p.roots = append(p.roots, &root{files: files, path: at, absolute: absolute(at)})
		}
		p.roots[i].globs = append(p.roots[i].globs, g)
	}
	return p
}

// listing has the state of one call of List.
type listing struct {
	p       *place
	found   func(follow.Listed)
	refused func(label, why string)
	seen    map[string]bool // paths found so far; nil with a single root
	visited []string
}

// List implements follow.Place. It calls found with each file to read. It calls refused with each
// file or folder that it has to skip, and the reason. Files that the option exclude matches are
// omitted.
func (p *place) List(found func(follow.Listed), refused func(label, why string)) error {
	if err := p.renew(refused); err != nil {
		return err
	}
	l := &listing{p: p, found: found, refused: refused}
	if len(p.roots) > 1 {
		l.seen = make(map[string]bool)
	}
	for _, r := range p.roots {
		dir, err := r.open()
		if err != nil {
			continue
		}
		if err := l.folder(r, dir, ".", r.globs, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visited = l.visited
	return nil
}

// renew opens the roots, the folders in which globs are matched, at most once per renewEvery. If a
// root's path now leads to another folder, renew opens this folder instead. It holds p.mu until all
// roots are open. Otherwise the reader of another route could take a root that is not open yet for
// an empty folder, and would treat all its files as deleted.
func (p *place) renew(refused func(label, why string)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.renewed.IsZero() && time.Since(p.renewed) < renewEvery {
		return nil
	}
	for _, r := range p.roots {
		if err := r.renew(); errors.Is(err, fs.ErrNotExist) {
			refused(r.path, "the folder does not exist yet; retrying")
		} else if err != nil {
			return fmt.Errorf("%q: open the folder: %w", r.path, err)
		}
	}
	p.renewed = time.Now()
	return nil
}

// folder lists the files that the globs match in the folder with the path name and below it.
func (l *listing) folder(r *root, dir vfs.Dir, name string, globs []glob, depth int) error {
	l.visited = append(l.visited, filepath.FromSlash(r.label(name)))
	if names, ok := literal(globs); ok {
		for _, base := range names {
			full := path.Join(name, base)
			if info, err := dir.Stat(full); err == nil {
				l.entry(r, full, info.Mode.Type(), &info)
			} else if !errors.Is(err, fs.ErrNotExist) {
				l.unread(r.label(full), err)
			}
		}
		return nil
	}
	entries, err := dir.Entries(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(name, e.Name)
		if e.Type.IsDir() {
			l.beneath(r, dir, full, globs, depth)
			continue
		}
		if slices.ContainsFunc(globs, func(g glob) bool { return g.file(e.Name) }) {
			l.entry(r, full, e.Type, nil)
		}
	}
	return nil
}

// literal returns the names in globs if each glob is the name of a file, without wildcards. In this
// case, no listing is needed.
func literal(globs []glob) ([]string, bool) {
	var names []string
	for _, g := range globs {
		if len(g) > 1 || special(g[0]) {
			return nil, false
		}
		names = append(names, g[0])
	}
	return names, true
}

func (l *listing) beneath(r *root, dir vfs.Dir, full string, globs []glob, depth int) {
	var rest []glob
	for _, g := range globs {
		rest = g.into(rest, path.Base(full))
	}
	if len(rest) == 0 {
		return
	}
	if depth >= maxDepth {
		l.refused(r.label(full), "it is nested too deeply")
		return
	}
	if err := l.folder(r, dir, full, rest, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.unread(r.label(full), fmt.Errorf("the folder cannot be listed: %w", err))
	}
}

// unread passes a folder or file that could not be read to refused, and reports err as a fault.
func (l *listing) unread(label string, err error) {
	l.refused(label, err.Error())
	l.p.fault(fmt.Errorf("%q: %w", label, err))
}

// entry handles one file that a glob matches. info is the result of a stat, or nil.
func (l *listing) entry(r *root, full string, kind fs.FileMode, info *vfs.Info) {
	label := r.label(full)
	if l.seen[label] || follow.MatchesGlob(l.p.exclude, path.Join(r.absolute, full)) {
		return
	}
	if l.seen != nil {
		l.seen[label] = true
	}
	s := follow.Listed{Dir: r, Name: full, Label: label}
	var err error
	switch {
	case kind&fs.ModeSymlink != 0 && l.p.o.Symlinks == "follow":
		s, err = r.resolve(full)
	case kind&fs.ModeSymlink != 0:
		l.refused(label, "it is a symlink, which may lead anywhere; set symlinks: follow to read its target")
		return
	case kind.IsDir():
		l.refused(label, "it is a folder; include "+path.Join(label, "*")+" to read its files")
		return
	case !kind.IsRegular():
		l.refused(label, follow.Kind(kind))
		return
	case info != nil:
		s.Info = *info
	default:
		s.Info, err = r.Stat(full)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was deleted, or it is a symlink without a target
	case err != nil:
		l.unread(label, err)
	case s.Info.Mode.IsDir():
	case !s.Info.Mode.IsRegular():
		l.refused(label, follow.Kind(s.Info.Mode.Type()))
	default:
		l.found(s)
	}
}

// Finished implements follow.Place. There are no finished files, because this source does not
// rename or move files.
func (p *place) Finished(func(follow.Listed)) error { return nil }

// siblings calls found with each regular file in the folder of the file with the given label. A
// rotated file may be among them under a name that no glob matches.
func (p *place) siblings(label string, found func(follow.Listed)) error {
	folder := path.Dir(label)
	for _, r := range p.roots {
		rel, ok := r.beneath(folder)
		if !ok {
			continue
		}
		dir, err := r.open()
		if err != nil {
			continue
		}
		every := func(string) bool { return true }
		return follow.FindRegular(dir, rel, 0, every, func(name string, info vfs.Info) {
			found(follow.Listed{Dir: r, Name: name, Label: r.label(name), Info: info})
		})
	}
	return nil
}

// FolderMissing implements follow.Place. It reports whether the folder of a file is missing
// and may come back, such as an unmounted volume.
func (p *place) FolderMissing(label string, dev uint64) bool {
	known := false
	for _, r := range p.roots {
		rel, ok := r.beneath(path.Dir(label))
		if !ok {
			continue
		}
		known = true
		if dir, err := r.open(); err == nil && !follow.IsFolderMissing(dir, rel, dev) {
			return false
		}
	}
	return known // otherwise only an earlier config had this folder
}

// folders returns the folders of the last listing.
func (p *place) folders() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visited
}

func (p *place) close() error {
	var errs []error
	for _, r := range p.roots {
		errs = append(errs, r.close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewed = time.Time{}
	return errors.Join(errs...)
}
