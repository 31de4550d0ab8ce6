package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/penstock-io/penstock/vfs"
)

// remedy is the end of each message about a file that does not match the checkpoint.
const remedy = "restore the file; or accept its current state, which keeps its content: " +
	"`penstock checkpoint set STATE --route PIPELINE/ROUTE --accept-output`"

// wrongFileError means that the file does not match the checkpoint.
type wrongFileError struct{ mismatch string }

func (e *wrongFileError) Error() string { return e.mismatch + "; " + remedy }

// openAt opens the file and truncates it to the place in saved, a resume token. If saved is "", the
// content stays. The returned file is positioned at its end. All changes are durable when openAt
// returns.
//
// If rotates is set, openAt first undoes rotations that are not in the checkpoint. If the file is
// missing, or is another file than the one in saved, openAt looks in dir for the saved file under
// another name. If it finds the saved file, it truncates that file. Then it opens the file of the
// given name and keeps its content, or creates it. It also creates a missing file if no batch was
// delivered into it before.
func openAt(dir vfs.Dir, name, saved string, rotates bool,
	mode fs.FileMode) (vfs.File, place, error) {
	if saved == "" {
		return openFound(dir, name, mode)
	}
	want, err := parsePlace(saved)
	if err != nil {
		return nil, place{}, fmt.Errorf("%w; %s", err, remedy)
	}
	if rotates {
		if err := unrotate(dir, name, want); err != nil {
			return nil, place{}, fmt.Errorf(
				"undo a rotation that is not in the checkpoint: %w", err)
		}
	}
	f, err := dir.OpenFile(name, os.O_RDWR, 0)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		err = &wrongFileError{fmt.Sprintf(
			"it does not exist, but its checkpoint records %d bytes", want.length)}
	} else if err == nil {
		if err = resume(f, want, true); err == nil {
			return f, want, nil
		}
		err = errors.Join(err, f.Close())
	}
	if _, wrong := errors.AsType[*wrongFileError](err); wrong {
		renamed, failed := finishRenamed(dir, want)
		// no batch was delivered into the file, for example in a first run with a wrong path
		unused := missing && want.length == 0 && failed == nil
		if renamed || unused {
			return openFound(dir, name, mode)
		}
		err = errors.Join(err, failed)
	}
	return nil, place{}, err
}

// resume truncates f to the place want, and positions f there. If f is another file or is shorter,
// resume returns a wrongFileError. If durably is set, it also syncs f.
func resume(f vfs.File, want place, durably bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch found := placeOf(info); {
	case !found.sameFile(want):
		return &wrongFileError{fmt.Sprintf(
			"it was replaced: its inode is %[2]d, but its checkpoint records inode %[1]d",
			want.inode, found.inode)}
	case found.length < want.length:
		return &wrongFileError{fmt.Sprintf(
			"it has %d bytes, but its checkpoint records %d delivered bytes: it was truncated, "+
				"or, with fsync: interval, a power loss removed its end",
			found.length, want.length)}
	case found.length > want.length:
		if err := f.Truncate(want.length); err != nil {
			return fmt.Errorf("truncate to %d bytes, the length of its checkpoint: %w",
				want.length, err)
		}
	}
	if durably {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	_, err = f.Seek(want.length, io.SeekStart)
	return err
}

// openFound opens the file if there is no resume token. It keeps the content of an existing file,
// and ends its last line if necessary. It creates a missing file.
func openFound(dir vfs.Dir, name string, mode fs.FileMode) (f vfs.File, at place, err error) {
	f, err = openOrCreate(dir, name, mode)
	if err != nil {
		return nil, place{}, err
	}
	defer func() {
		if err != nil {
			f, err = nil, errors.Join(err, f.Close())
		}
	}()
	if err = endLastLine(f); err != nil {
		return f, place{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return f, place{}, err
	}
	if err = f.Sync(); err != nil {
		return f, place{}, err
	}
	return f, placeOf(info), dir.Sync()
}

// openOrCreate opens a file, or creates it with the given mode regardless of the umask.
func openOrCreate(dir vfs.Dir, name string, mode fs.FileMode) (vfs.File, error) {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return dir.OpenFile(name, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := setMode(f, mode); err != nil {
		return nil, errors.Join(err, f.Close(), dir.Remove(name))
	}
	return f, nil
}

// setMode sets the mode bits that the umask has removed from a new file. File systems without
// modes, such as FAT, refuse this. Their files then have the mode of the mount.
func setMode(f vfs.File, mode fs.FileMode) error {
	c, ok := f.(interface{ Chmod(fs.FileMode) error })
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode.Perm() == mode {
		return err
	}
	err = c.Chmod(mode)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// endLastLine adds a line end if the last line has none, and positions f at its end.
func endLastLine(f vfs.File) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], end-1); err != nil {
		return fmt.Errorf("read its last byte: %w", err)
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = f.Write([]byte{'\n'})
	return err
}
