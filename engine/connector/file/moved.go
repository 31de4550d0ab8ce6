package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// errMoved and errCut are reasons for a ReopenError: another program, such as logrotate, has
// renamed, removed or truncated the file while the sink was writing it. When the sink is opened
// again, it continues at the end of the file that has the name by then, or creates a new file.
var (
	errMoved = errors.New("another program moved or removed the file")
	errCut   = errors.New("another program truncated the file")
)

func (l *lane) failure(err error) error { return fmt.Errorf("file %q: %w", l.sink.o.Path, err) }

// checkName checks whether the file still has its name, and at least the acknowledged length. If
// not, it detaches the lane: nothing more is written to this file, and the engine opens the sink
// again. The goroutine that syncs calls checkName. The error is a ReopenError or an error of
// detach.
func (l *lane) checkName() error {
	l.syncing <- struct{}{} // the file must not be rotated meanwhile
	l.mu.Lock()
	id, settled := l.id, l.settled
	l.mu.Unlock()
	info, err := l.dir.Stat(l.name)
	<-l.syncing
	reason := errMoved
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil // the next check tries again
	case err == nil && placeOf(info).sameFile(id):
		if info.Size >= settled {
			return nil
		}
		reason = errCut
	}
	l.writes.Lock()
	defer l.writes.Unlock()
	return l.detach(reason)
}

// checkLength checks whether another program has truncated the file. If the file has fewer bytes
// than were written to it, the next write would leave a hole. checkLength then detaches the lane,
// so that the engine opens the sink again. A truncation between this check and the write is not
// detected. The caller holds l.writes. The error is a ReopenError, or an error of Stat or detach.
func (l *lane) checkLength() error {
	l.mu.Lock()
	f, length := l.file, l.length
	l.mu.Unlock()
	if f == nil {
		return errStopped
	}
	if info, err := f.Stat(); err != nil || info.Size >= length {
		return err
	}
	return l.detach(errCut)
}

// detach ends the use of the lane. It truncates the file, which may have another name now, to the
// acknowledged length. The engine delivers the unacknowledged batches again, into the next file.
// The caller holds l.writes. The error is a ReopenError, unless the file could not be synced or
// truncated.
func (l *lane) detach(reason error) error {
	l.end(reason)
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	f, at := l.file, l.id.at(l.settled)
	l.length, l.reserved = l.settled, false
	l.mu.Unlock()
	if f == nil {
		return &stream.ReopenError{ResumeToken: at.String(), Err: l.failure(reason)}
	}
	err := l.syncTo(f, at.length)
	if err == nil {
		err = cutTo(f, at.length)
	}
	if err != nil {
		return err
	}
	return &stream.ReopenError{Err: l.failure(reason)}
}

// cutTo truncates f to length and syncs it. It does nothing if f is not longer.
func cutTo(f vfs.File, length int64) error {
	info, err := f.Stat()
	if err != nil || info.Size <= length {
		return err
	}
	if err := f.Truncate(length); err != nil {
		return fmt.Errorf("truncate to %d bytes, the delivered length: %w", length, err)
	}
	return f.Sync()
}

// finishRenamed looks for the file with the identity of want, which may have another name now, for
// example after logrotate. It truncates this file to the length of want, and reports whether it has
// found the file. On systems without birth times, it does not look for the file, because a
// newer, unrelated file may have the same inode number.
func finishRenamed(dir vfs.Dir, want place) (found bool, err error) {
	if want.birth == 0 {
		return false, nil
	}
	entries, err := dir.Entries(".")
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !e.Type.IsRegular() {
			continue
		}
		info, err := dir.Stat(e.Name)
		if err != nil || info.Birth.IsZero() || !placeOf(info).sameFile(want) ||
			info.Size < want.length {
			continue
		}
		f, err := dir.OpenFile(e.Name, os.O_RDWR, 0)
		if err != nil {
			return false, err
		}
		if err := errors.Join(resume(f, want, true), f.Close()); err != nil {
			return false, fmt.Errorf("%s, the file's new name: %w", e.Name, err)
		}
		return true, nil
	}
	return false, nil
}
