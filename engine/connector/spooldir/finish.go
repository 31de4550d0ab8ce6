package spooldir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

const (
	// syncSpacing is the least time between two syncs of the directory, because one takes as long as thousands of renames. It is done
	// beside the work, and at Close: after a power loss before it a file may only have its old name again, and is
	// recognised by its id.
	syncSpacing = time.Second
	// maxNumber is how many names are tried where a finished file's name is taken.
	maxNumber = 100_000
	// maxWatched is how many finished files a reader looks at again, maxHeld how many of them are deleted ones, held open.
	maxWatched, maxHeld = 10_000, 64
)

// finishedFile tells a reader what Finish did.
type finishedFile struct {
	entry  *entry
	name   string
	where  place
	handle vfs.File // of a deleted file; nil: too many are held
}

// Finish implements penstock.Finisher: it renames, deletes or moves the file, if it is still the one that was read and holds not
// a byte more. With finished: keep it does nothing.
func (s *source) Finish(ctx context.Context, p penstock.Partition) error {
	if s.o.Finished == finishedKeep {
		return nil
	}
	if err := s.acquire(); err != nil {
		return err
	}
	return errors.Join(s.finish(p), s.done())
}

func (s *source) finish(p penstock.Partition) error {
	s.finishing.Lock()
	defer s.finishing.Unlock()
	e, name, over := s.entryOf(p.ID)
	switch {
	case over:
		return nil
	case e == nil:
		return s.finishUnknown(p)
	}
	f, err := s.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody has taken it away: there is nothing left to be done
	} else if err != nil {
		return fmt.Errorf("finish %q: %w", name, err)
	}
	if err := errors.Join(s.finishOpen(e, name, f), f.Close()); err != nil {
		return fmt.Errorf("finish %q: %w", name, err)
	}
	return nil
}

// entryOf returns what is known of a partition, and whether it is over: finished, or not the file's any more.
func (s *source) entryOf(id string) (e *entry, name string, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.byID[id]; e == nil {
		return nil, "", false
	}
	return e, e.name, e.dead || e.done
}

// finishUnknown is for a partition of an earlier run that no reader has met in this one.
func (s *source) finishUnknown(p penstock.Partition) error {
	id, err := fileid.Parse(p.ID)
	if err != nil {
		return fmt.Errorf("finish %q: %w", p.Name, err)
	}
	if !fs.ValidPath(p.Name) || !s.names.wanted(p.Name) {
		return nil
	}
	info, err := s.dir.Stat(p.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was finished before
	} else if err != nil {
		return fmt.Errorf("finish %q: %w", p.Name, err)
	}
	if !isOf(id, info) {
		return nil // the name has been given to another file
	}
	return fmt.Errorf("finish %q: no reader has met the file in this run; it is finished after that", p.Name)
}

// isOf says whether a stat can be of the file that has this id.
func isOf(id fileid.ID, info vfs.Info) bool {
	return keyOf(info) == id.Key() && (id.Birth == 0 || info.Birth.IsZero() || info.Birth.UnixNano() == id.Birth)
}

// finishOpen finishes the file that f has open under its name.
func (s *source) finishOpen(e *entry, name string, f vfs.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !isOf(e.id, info) {
		return nil // the name has been given to another file, which is read as such
	}
	readers, err := s.settled(e, info.Size)
	if err != nil {
		return err
	}
	where, to := inSpool, name
	var held []vfs.File
	switch s.o.Finished {
	case finishedRename:
		to, err = s.rename(e, name, s.dir, name+s.o.Suffix)
	case finishedMove:
		where = inMoved
		to, err = s.move(e, name)
	case finishedDelete:
		where = nowhere
		held, err = s.remove(e, name, readers)
	}
	if err != nil {
		return err
	}
	s.tell(e, to, where, readers, held)
	s.log.Debug("a file is finished", "file", name, "finished", s.o.Finished, "to", to)
	s.h.Count("files_finished", 1)
	return nil
}

// settled says whether every reader has read the file to this size and, where it grew, stored that it was settled. It returns the
// readers that are still there.
func (s *source) settled(e *entry, size int64) ([]*reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var readers []*reader
	for _, at := range e.sealed {
		if at.at != size {
			s.wakeLocked()
			return nil, fmt.Errorf("it has %d bytes, %d were read when it counted as finished; the rest is delivered first", size, at.at)
		}
		if saved, ok := at.r.saved[e.text]; ok && saved < size {
			return nil, errors.New("it has grown, and what came later is not settled yet")
		}
		if slices.Contains(s.readers, at.r) {
			readers = append(readers, at.r)
		}
	}
	if len(e.sealed) < e.refs || len(e.sealed) == 0 {
		return nil, errors.New("it is being read")
	}
	return readers, nil
}

// rename gives the file a name that no file has, and makes sure that it was this file.
func (s *source) rename(e *entry, from string, dir vfs.Dir, want string) (string, error) {
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
			return "", err
		}
		if isOf(e.id, info) {
			return name, nil
		}
		return "", errors.Join(errSwapped, dir.RenameNew(name, s.dir, from))
	}
	return "", fmt.Errorf("%d names beginning with %q are taken; clear them away", maxNumber, want)
}

var errSwapped = errors.New("another file had taken the name meanwhile; it is left as it was")

func (s *source) move(e *entry, name string) (string, error) {
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

// remove deletes the file, under its name, if that is still its own. Before that it opens the file once for each reader that may
// hold one more: no name will lead to what a writer may still add.
func (s *source) remove(e *entry, name string, readers []*reader) (held []vfs.File, err error) {
	held = make([]vfs.File, len(readers))
	for i, r := range readers {
		if s.mayHold(r) {
			if held[i], err = s.dir.Open(name); err != nil {
				return nil, errors.Join(err, closeAll(held))
			}
		}
	}
	info, err := s.dir.Stat(name)
	switch {
	case err != nil:
	case !isOf(e.id, info):
		err = errSwapped
	default:
		err = s.dir.Remove(name)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(held))
	}
	return held, nil
}

func closeAll(files []vfs.File) error {
	var errs []error
	for _, f := range files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *source) mayHold(r *reader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.held+len(r.news) < min(maxHeld, s.o.OpenFiles/2)
}

// tell notes that the file is finished, and tells the readers where it went.
func (s *source) tell(e *entry, name string, where place, readers []*reader, held []vfs.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done, e.name, s.unsync = true, name, true
	for i, r := range readers {
		n := finishedFile{entry: e, name: name, where: where}
		if where == nowhere {
			n.handle = held[i]
		}
		r.news = append(r.news, n)
	}
}

// sync makes the names durable that were changed since the last one.
func (s *source) sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	dir, moved := s.dir, s.moved
	idle := !s.unsync || dir == nil
	s.unsync = s.unsync && idle
	s.mu.Unlock()
	if idle {
		return nil
	}
	err := dir.Sync()
	if err == nil && moved != nil {
		err = moved.Sync()
	}
	if err != nil {
		s.mu.Lock()
		s.unsync = true
		s.mu.Unlock()
		return fmt.Errorf("sync the directory %q: %w", dir.Path(), err)
	}
	return nil
}

func (s *source) noteSealed(r *reader, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsealLocked(r, f.entry)
	f.entry.sealed = append(f.entry.sealed, sealing{r, f.last})
}

func (s *source) noteGrown(r *reader, f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsealLocked(r, f.entry)
	f.entry.grew = true
	r.saved[f.entry.text] = 0
}

func (s *source) unsealLocked(r *reader, e *entry) {
	e.sealed = slices.DeleteFunc(e.sealed, func(at sealing) bool { return at.r == r })
}

// markDone says that the file was finished in an earlier run.
func (s *source) markDone(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.done = true
}

func (s *source) renamed(e *entry, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.name = name
}
