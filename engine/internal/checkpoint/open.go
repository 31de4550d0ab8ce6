package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Open opens the checkpoint in dir and describes it in the Report. If there is none, it creates
// one. The caller must hold the lock of the directory.
//
// The last entry may be unfinished after a crash. Open ignores such an entry. If an entry is
// damaged in another way, Open copies the file to Name.damaged-N and uses only the entries before
// the damaged one. The data of the lost entries is then delivered again.
//
// Open returns an error, and does not change the file, if the header or the snapshot is damaged, or
// if the file has a newer format than this program knows.
func Open(dir vfs.Dir, o Options) (*Store, *Report, error) {
	s := &Store{dir: dir, options: o, version: cmp.Or(o.version, version)}
	f, err := dir.OpenFile(Name, os.O_RDWR|os.O_APPEND, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		return s.create()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open checkpoint %s: %w", s.path(), err)
	}
	l, err := s.resume(f, s.version)
	if err != nil {
		return nil, nil, err
	}
	report := l.report(s.path())
	// The process that wrote the log may have been killed before it synced the name.
	if err := dir.Sync(); err != nil {
		err = fmt.Errorf("sync the directory of %s: %w", s.path(), err)
		return nil, nil, errors.Join(err, s.Close())
	}
	if err := s.renew(l, report); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, report, nil
}

// resume reads the log f and continues it. After an error it closes f.
func (s *Store) resume(f vfs.File, newest uint16) (*loaded, error) {
	l, err := load(f, newest)
	if err != nil {
		return nil, errors.Join(refusal(s.path(), err), f.Close())
	}
	s.f, s.st, s.generation, s.size = f, l.st, l.generation, l.size
	return l, nil
}

// create creates the first log in the directory.
func (s *Store) create() (*Store, *Report, error) {
	s.st = newState()
	err := s.replace()
	if err == nil {
		err = s.failed
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, &Report{File: s.path(), Fresh: true}, nil
}

// renew replaces the log in l by a snapshot of its contents. If the log is damaged or in an older
// format, renew first makes a copy of it. It does nothing if the log consists only of a snapshot in
// the present format.
func (s *Store) renew(l *loaded, report *Report) error {
	if l.bad == nil && l.version == s.version && l.good == l.snapshot {
		s.synced = 0 // the process that wrote it may have been killed before a sync
		return nil
	}
	kind := "" // of the copy
	switch {
	case l.bad != nil && !l.torn:
		kind = "damaged"
	case l.version < s.version:
		kind = fmt.Sprintf("v%d", l.version)
	}
	if kind != "" {
		name, err := setAside(s.dir, s.f, kind)
		if err != nil {
			return fmt.Errorf("keep a copy of checkpoint %s before it is rewritten: %w",
				s.path(), err)
		}
		report.Aside = append(report.Aside, name)
	}
	err := s.replace()
	if err == nil {
		return s.failed
	}
	if kind != "" {
		return fmt.Errorf("checkpoint %s must be rewritten before entries can be appended: "+
			"%w", s.path(), err)
	}
	s.warn(err) // continue with the old log without its unfinished end
	if err := s.f.Truncate(l.good); err != nil {
		return fmt.Errorf("remove the unfinished entry from checkpoint %s: %w", s.path(), err)
	}
	s.size = l.good
	return nil
}

// refusal returns the error for an unusable file. It contains a remedy.
func refusal(path string, err error) error {
	if errors.Is(err, errVersion) {
		return fmt.Errorf("checkpoint %s: %w: run that version, or convert the file with it: `%s`",
			path, err, convertCommand(path))
	}
	return fmt.Errorf("checkpoint %s cannot be used, and was not changed: %w: restore a copy of "+
		"it, or move it away to deliver everything again", path, err)
}

// Snapshot is the contents of a checkpoint.
type Snapshot struct {
	Version uint16
	Routes  []RouteSnapshot
}

// RouteSnapshot is the part of a checkpoint that belongs to one route.
type RouteSnapshot struct {
	Route  string
	Marks  []stream.Mark
	Places map[string]string // resume token by the name of the lane
}

// Read reads the checkpoint in dir. It needs no lock and changes nothing, so another process may
// have the checkpoint open. It returns fs.ErrNotExist if there is no checkpoint, and an error if
// the file is unusable (see Open).
func Read(dir vfs.Dir) (*Snapshot, *Report, error) {
	path := filepath.Join(dir.Path(), Name)
	f, err := dir.Open(Name)
	if err != nil {
		return nil, nil, fmt.Errorf("read checkpoint %s: %w", path, err)
	}
	defer f.Close()
	l, err := load(f, version)
	if err != nil {
		return nil, nil, refusal(path, err)
	}
	snapshot := &Snapshot{Version: l.version}
	for _, r := range l.st.alive() {
		list := RouteSnapshot{Route: r.key, Places: l.st.places(r.key)}
		for _, p := range r.live() {
			list.Marks = append(list.Marks, clone(&p.mark))
		}
		snapshot.Routes = append(snapshot.Routes, list)
	}
	return snapshot, l.report(path), nil
}
