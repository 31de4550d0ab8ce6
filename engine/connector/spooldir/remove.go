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

// remove deletes the file of e. To avoid deleting another file that took the name, remove renames
// the file aside, checks it there, and only then unlinks it. If one more file may be held open,
// remove opens it first, because a writer may still add data to a file without a name.
func (s *source) remove(p stream.Partition, e *follow.Entry, name string) (held vfs.File, err error) {
	aside, own := asideName(p, name), name
	if name == aside {
		own = p.Name // it could not be renamed back to this name
	} else if err := s.dir.RenameNew(name, s.dir, aside); err != nil {
		return nil, err
	}
	info, err := s.dir.Stat(aside)
	if err == nil {
		err = s.unchanged(e, info)
	}
	if err == nil && s.finisher.MayHold() {
		held, err = s.dir.Open(aside)
	}
	if err == nil {
		err = s.dir.Remove(aside)
	}
	if err == nil {
		return held, nil
	}
	back := s.putBack(aside, own)
	if back == nil {
		s.finisher.Moved(e, own)
	} else if errors.Is(back, fs.ErrExist) && e.Is(info) {
		s.finisher.Moved(e, aside) // readers read the rest under this name
	}
	if held != nil {
		err = errors.Join(err, held.Close())
	}
	return nil, errors.Join(err, back)
}

// putBack renames a file back that was renamed aside. If another file has the name, it fails, and a
// later Finish tries again.
func (s *source) putBack(aside, name string) error {
	if err := s.dir.RenameNew(aside, s.dir, name); err != nil {
		return fmt.Errorf("put %q back to its name %q: %w", aside, name, err)
	}
	return nil
}

// recoverAside puts back a file that a process renamed aside and did not delete. It is called if
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
