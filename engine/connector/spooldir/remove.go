package spooldir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// asideName returns the hidden name that a file has while it is being deleted. It depends on the
// partition alone, so that the next process finds it.
func asideName(p stream.Partition, name string) string {
	sum := sha256.Sum256([]byte(p.ID))
	return path.Join(path.Dir(name), ".penstock-delete-"+hex.EncodeToString(sum[:8]))
}

// remove deletes the file of e. A file that took the name meanwhile is not deleted: the file is
// renamed aside, checked there, and only then unlinked. Before that, remove opens it once for each
// reader that may hold one more file, because no name will lead to what a writer may still add.
func (s *source) remove(p stream.Partition, e *follow.Entry, name string, readers []*follow.Reader) (held []vfs.File, err error) {
	aside, own := asideName(p, name), name
	if name == aside {
		own = p.Name // which it could not get back
	} else if err := s.dir.RenameNew(name, s.dir, aside); err != nil {
		return nil, err
	}
	info, err := s.dir.Stat(aside)
	if err == nil {
		err = s.unchanged(e, info)
	}
	if err == nil {
		held, err = s.open(aside, readers)
	}
	if err == nil {
		err = s.dir.Remove(aside)
	}
	if err != nil {
		back := s.putBack(aside, own)
		if back == nil {
			s.finisher.Moved(e, own)
		} else if errors.Is(back, fs.ErrExist) && e.Is(info) {
			s.finisher.Moved(e, aside) // readers read the rest under this name
		}
		return nil, errors.Join(err, closeAll(held), back)
	}
	return held, nil
}

// open opens a file once for each reader that may hold one more; the others get nil.
func (s *source) open(name string, readers []*follow.Reader) (held []vfs.File, err error) {
	held = make([]vfs.File, len(readers))
	for i, r := range readers {
		if s.finisher.MayHold(r) {
			if held[i], err = s.dir.Open(name); err != nil {
				return held, err
			}
		}
	}
	return held, nil
}

// putBack gives a file that was renamed aside its name again, unless another file has it; then a
// later Finish tries again.
func (s *source) putBack(aside, name string) error {
	if err := s.dir.RenameNew(aside, s.dir, name); err != nil {
		return fmt.Errorf("put %q back to its name %q: %w", aside, name, err)
	}
	return nil
}

// recoverAside puts back a file that a process renamed aside and did not delete. It is called where
// the name does not lead to the partition's file.
func (s *source) recoverAside(p stream.Partition, name string) error {
	if s.o.Finished != finishedDelete {
		return nil
	}
	aside := asideName(p, name)
	if _, err := s.dir.Stat(aside); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("finish %q: %w", name, err)
	}
	if err := s.putBack(aside, name); err != nil {
		return fmt.Errorf("finish %q: %w", name, err)
	}
	return fmt.Errorf("finish %q: an earlier deletion was interrupted; it is repeated", name)
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
