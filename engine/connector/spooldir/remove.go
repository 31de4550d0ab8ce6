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

// asideName returns the hidden name that a file has while it is being deleted. Within the file's
// directory, it depends only on the partition, so that the next process can find the file after a
// crash.
func asideName(p stream.Partition, name string) string {
	sum := sha256.Sum256([]byte(p.ID))
	return path.Join(path.Dir(name), ".penstock-delete-"+hex.EncodeToString(sum[:8]))
}

// remove deletes the file of e. Another file may get the name at any time, and must not be deleted.
// Therefore remove first gives the file a hidden name, checks that it is the right file, and only
// then deletes it. A writer that has the file open may still write to it. So that these bytes are
// read, remove opens the file before the deletion and returns it, unless too many are held already.
func (s *source) remove(p stream.Partition, e *follow.Entry, name string) (held vfs.File, err error) {
	aside, own := asideName(p, name), name
	if name == aside {
		own = p.Name // it was given this name before and could not be renamed back
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
	} else if errors.Is(back, fs.ErrExist) && s.finisher.Is(e, info) {
		s.finisher.Moved(e, aside) // readers read the rest under this name
	}
	if held != nil {
		err = errors.Join(err, held.Close())
	}
	return nil, errors.Join(err, back)
}

// putBack gives a file with a hidden name its old name back. If another file has this name now,
// putBack fails, and a later Finish tries again.
func (s *source) putBack(aside, name string) error {
	if err := s.dir.RenameNew(aside, s.dir, name); err != nil {
		return fmt.Errorf("put %q back to its name %q: %w", aside, name, err)
	}
	return nil
}

// recoverAside is called if the partition's file is not found under its name. If a process was
// interrupted while it deleted the file, recoverAside gives the file its name back. It then returns
// an error, so that a later Finish repeats the deletion.
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
