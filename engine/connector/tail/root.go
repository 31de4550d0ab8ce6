package tail

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/vfs"
)

const (
	// maxDepth is the maximum depth of folders below a root.
	maxDepth = 64
	// maxLinks is the maximum length of a chain of symlinks, with the file at its end.
	maxLinks = 16
)

// root is a folder in which globs are matched. The folder may be created later, disappear and
// appear again.
type root struct {
	files    vfs.FS
	path     string // as in the config, with slashes
	absolute string // path as an absolute path
	globs    []glob

	mu  sync.Mutex // guards dir
	dir vfs.Dir    // nil while the folder does not exist
}

// renew opens the folder. If the path now leads to another folder, renew opens this one instead.
func (r *root) renew() error {
	fresh, err := r.files.OpenDir(filepath.FromSlash(r.path))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && r.dir != nil {
			err = errors.Join(err, r.dir.Close())
			r.dir = nil
		}
		return err
	}
	if r.dir != nil {
		was, wasErr := r.dir.Stat(".")
		now, nowErr := fresh.Stat(".")
		if wasErr == nil && nowErr == nil && was.Dev == now.Dev && was.Ino == now.Ino {
			return fresh.Close()
		}
		err = r.dir.Close()
	}
	r.dir = fresh
	return err
}

func (r *root) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == nil {
		return nil
	}
	err := r.dir.Close()
	r.dir = nil
	return err
}

func (r *root) open() (vfs.Dir, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == nil {
		return nil, fs.ErrNotExist
	}
	return r.dir, nil
}

// Open implements follow.Dir.
func (r *root) Open(name string) (vfs.File, error) {
	dir, err := r.open()
	if err != nil {
		return nil, err
	}
	return dir.Open(name)
}

// OpenRegular implements vfs.RegularOpener.
func (r *root) OpenRegular(name string) (vfs.File, error) {
	dir, err := r.open()
	if err != nil {
		return nil, err
	}
	return vfs.OpenRegular(dir, name)
}

// Stat implements follow.Dir.
func (r *root) Stat(name string) (vfs.Info, error) {
	dir, err := r.open()
	if err != nil {
		return vfs.Info{}, err
	}
	return dir.Stat(name)
}

// beneath returns the path of a folder relative to the root. ok is false if the folder is outside
// of the root.
func (r *root) beneath(folder string) (rel string, ok bool) {
	rel, err := filepath.Rel(filepath.FromSlash(r.path), filepath.FromSlash(folder))
	rel = filepath.ToSlash(rel)
	return rel, err == nil && fs.ValidPath(rel)
}

func (r *root) label(name string) string { return path.Join(r.path, name) }

// linked is the folder with the target of a symlink. Each call of Open or Stat opens the folder and
// closes it again, because there may be thousands of such folders.
type linked struct {
	files vfs.FS
	path  string // in the syntax of the system
}

// Open implements follow.Dir.
func (l linked) Open(name string) (vfs.File, error) {
	dir, err := l.files.OpenDir(l.path)
	if err != nil {
		return nil, err
	}
	f, err := dir.Open(name)
	return f, errors.Join(err, dir.Close())
}

// Stat implements follow.Dir.
func (l linked) Stat(name string) (vfs.Info, error) {
	dir, err := l.files.OpenDir(l.path)
	if err != nil {
		return vfs.Info{}, err
	}
	info, err := dir.Stat(name)
	return info, errors.Join(err, dir.Close())
}

// resolve follows a chain of symlinks to its end.
func (r *root) resolve(name string) (follow.Listed, error) {
	s := follow.Listed{Label: r.label(name)}
	at := filepath.FromSlash(s.Label)
	for range maxLinks {
		l := linked{files: r.files, path: filepath.Dir(at)}
		dir, err := r.files.OpenDir(l.path)
		if err != nil {
			return s, err
		}
		base := filepath.Base(at)
		info, err := dir.Stat(base)
		to := ""
		if err == nil && info.Mode&fs.ModeSymlink != 0 {
			linker, ok := dir.(vfs.Linker)
			if !ok {
				err = errors.ErrUnsupported
			} else {
				to, err = linker.ReadLink(base)
			}
		}
		if err = errors.Join(err, dir.Close()); err != nil {
			return s, err
		}
		if to == "" {
			s.Dir, s.Name, s.Info = l, base, info
			return s, nil
		}
		if at = to; !filepath.IsAbs(to) {
			at = filepath.Join(l.path, to)
		}
	}
	return s, fmt.Errorf("it leads through more than %d symlinks", maxLinks)
}
