package spooldir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

const (
	// syncSpacing is the time between two syncs of the directory. A sync takes as long as thousands
	// of renames. Therefore a separate goroutine makes one sync for many renames. The last sync is
	// made before the directory is closed. If the power fails before a sync, files may have their
	// old names again, but they are recognized by their ids.
	syncSpacing = time.Second
	// maxNumber bounds the numbers that are appended to a finished file's name if this name is
	// taken.
	maxNumber = 100_000
)

// Finishes implements stream.Finisher. It returns false with `finished: keep`, because Finish then
// has nothing to do. A file then counts as finished as soon as it is settled up to its end
// (delivered, dead-lettered or dropped), without a further entry in the checkpoint.
func (s *source) Finishes() bool { return s.o.Finished != finishedKeep }

// Finish implements stream.Finisher. It renames, deletes or moves the file, if this is still the
// file that was read and has not grown.
func (s *source) Finish(ctx context.Context, p stream.Partition) error {
	if err := s.acquire(); err != nil {
		return err
	}
	return errors.Join(s.finisher.Do(func() error { return s.finish(p) }), s.done())
}

func (s *source) finish(p stream.Partition) error {
	e, name, over := s.finisher.Lookup(p.ID)
	switch {
	case over:
		return nil
	case e == nil:
		return s.finishUnknown(p)
	}
	untouched, err := s.finisher.Sealed(e)
	if err == nil && !untouched {
		var info vfs.Info
		if info, err = s.dir.Stat(name); errors.Is(err, fs.ErrNotExist) || err == nil && !s.finisher.Is(e, info) {
			return s.recoverAside(p, name) // it was removed, or another file has the name now
		} else if err == nil {
			err = s.finisher.Check(e, info.Size)
		}
	}
	if err == nil {
		err = s.finishKnown(p, e, name)
		if errors.Is(err, fs.ErrNotExist) && s.gone(name) {
			return s.recoverAside(p, name)
		}
	}
	if err != nil {
		return fmt.Errorf("finish %q: %w", name, err)
	}
	return nil
}

func (s *source) gone(name string) bool {
	_, err := s.dir.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// finishUnknown handles a partition that no reader has opened in this run.
func (s *source) finishUnknown(p stream.Partition) error {
	id, err := fileid.Parse(p.ID)
	if err != nil {
		return fmt.Errorf("finish %q: %w", p.Name, err)
	}
	if !fs.ValidPath(p.Name) || !s.names.wanted(p.Name) {
		return nil
	}
	info, err := s.dir.Stat(p.Name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !follow.IsOf(id, info) {
		// it was finished before, or another file has the name now
		return s.recoverAside(p, p.Name)
	} else if err != nil {
		return fmt.Errorf("finish %q: %w", p.Name, err)
	}
	return fmt.Errorf("finish %q: no reader has met the file in this run; it is finished after that", p.Name)
}

// finishKnown renames, moves or deletes the file of e, which has the given name. After a rename or
// move, it checks the file again. If the file is not the one that was read, or has grown,
// finishKnown gives it its old name back. A file that is to be deleted gets a hidden name for this
// check.
func (s *source) finishKnown(p stream.Partition, e *follow.Entry, name string) error {
	dir, to := follow.Dir(s.dir), name
	var held vfs.File
	var err error
	switch s.o.Finished {
	case finishedRename:
		to, err = s.rename(e, name, s.dir, name+s.o.Suffix)
	case finishedMove:
		dir = s.moved
		to, err = s.move(e, name)
	case finishedDelete:
		dir = nil
		held, err = s.remove(p, e, name)
	}
	if err != nil {
		return err
	}
	s.renamed(path.Dir(name))
	s.finisher.Tell(e, dir, to, held)
	s.log.Debug("a file is finished", "file", name, "finished", s.o.Finished, "to", to)
	s.h.Count("files_finished", 1)
	return nil
}

// rename gives the file of e an unused name. Then it checks that the renamed file is that of e and
// has not grown. If the check fails, rename restores the old name and returns an error. There is
// one exception: if the file has grown and its old name is taken meanwhile, the file keeps the new
// name, and rename returns no error.
func (s *source) rename(e *follow.Entry, from string, dir vfs.Dir, want string) (string, error) {
	for n := range maxNumber {
		name := numbered(want, n)
		err := s.dir.RenameNew(from, dir, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return "", err
		}
		info, err := dir.Stat(name)
		if err != nil {
			return "", fmt.Errorf("look at it as %q: %w", name, err)
		}
		err = s.unchanged(e, info)
		if err == nil {
			return name, nil
		}
		back := dir.RenameNew(name, s.dir, from)
		if errors.Is(back, fs.ErrExist) && s.finisher.Is(e, info) {
			// The old name is taken, so the file keeps the new one. The readers will
			// notice that the file has grown.
			return name, nil
		}
		return "", errors.Join(err, back)
	}
	return "", fmt.Errorf("%d names beginning with %q are taken; remove some", maxNumber, want)
}

// unchanged returns an error unless info describes the file of e, with the size up to which it was
// read.
func (s *source) unchanged(e *follow.Entry, info vfs.Info) error {
	if !s.finisher.Is(e, info) {
		s.finisher.Touched(e)
		return errSwapped
	}
	return s.finisher.Check(e, info.Size)
}

var errSwapped = errors.New("another file had taken the name meanwhile; it is left as it was")

func (s *source) move(e *follow.Entry, name string) (string, error) {
	if dir := path.Dir(name); dir != "." {
		made, err := s.moved.MakeDir(dir, 0o700)
		if err != nil {
			return "", fmt.Errorf("make %q beneath move_to: %w", dir, err)
		}
		if err := made.Close(); err != nil {
			return "", err
		}
	}
	return s.rename(e, name, s.moved, name)
}

// renamed notes that names in subdirectories were changed. The next sync makes the changes
// durable.
func (s *source) renamed(subdirectories ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range subdirectories {
		s.unsync[dir] = true
	}
}

// sync makes the renames since the last sync durable. The directories to which files were moved
// come first, so that each file has at least one durable name.
func (s *source) sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	dir, moved := s.dir, s.moved
	var changed []string
	if dir != nil {
		changed = slices.Sorted(maps.Keys(s.unsync))
		clear(s.unsync)
	}
	s.mu.Unlock()
	var err error
	for _, sub := range changed {
		var failed error
		if moved != nil {
			failed = syncBelow(moved, sub)
		}
		if failed == nil {
			failed = syncBelow(dir, sub)
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		s.renamed(changed...)
		return fmt.Errorf("sync the directory %q: %w", dir.Path(), err)
	}
	return nil
}

// syncBelow syncs a subdirectory. One that was removed meanwhile needs no sync.
func syncBelow(dir vfs.Dir, sub string) error {
	if sub == "." {
		return dir.Sync()
	}
	below, err := dir.OpenDir(sub)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(below.Sync(), below.Close())
}
