// Package checkpoint stores the progress of one partition in a file, from which a program resumes
// after a crash. The stored progress is called a mark. It has the watermark of a ledger, up to
// which everything is settled, and the settled ranges above it. A [File] is the checkpoint of a
// [github.com/penstock-io/penstock/flow.Book].
//
// If the system has file locks, a second program cannot open the same checkpoint. Every Save
// replaces the file durably as a whole. So a crash during a Save leaves either the mark that was
// saved last or the new mark. docs/formats/mark.md describes the format.
//
// The package does not decide what is settled or when to save, and never treats an unreadable file
// as an empty one. It is meant for one partition: a program with many partitions needs a log
// instead, such as that of the engine. The package starts no goroutine and runs under
// testing/synctest.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/vfs"
)

// The suffixes of additional files, and the mode of all files.
const (
	newSuffix  = ".new"  // the next mark while it is written
	lockSuffix = ".lock" // held while the file is open; not removed
	fileMode   = 0o600
)

// ErrClosed is returned by a File after Close.
var ErrClosed = errors.New("checkpoint: closed")

// File is a file that holds a mark, the stored progress of a partition. Its methods are safe for
// concurrent use.
type File struct {
	dir  vfs.Dir
	name string
	lock io.Closer // nil if the system has no locks

	mu     sync.Mutex // guards the fields below; held during a Save
	failed error      // the error of syncing the directory, which every later Save and Load returns
	closed bool
}

// Open opens the checkpoint at path. Its directory must exist, but the file need not exist. Open
// locks the checkpoint with a file with suffix .lock until Close or the end of the process. A
// second Open returns vfs.ErrLocked. On systems without locks, concurrent use is not detected.
func Open(path string) (*File, error) { return OpenIn(vfs.OS(), path) }

// OpenIn is Open for another file system, such as that of a test.
func OpenIn(system vfs.FS, path string) (*File, error) {
	name := filepath.Base(path)
	if !vfs.ValidName(name) || name == "." || path[len(path)-1] == filepath.Separator {
		return nil, fmt.Errorf("open checkpoint %q: it names no file", path)
	}
	dir, err := system.OpenDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open the folder of checkpoint %q: %w", path, err)
	}
	lock, err := dir.Lock(name+lockSuffix, fmt.Sprintf("process %d", os.Getpid()))
	if errors.Is(err, errors.ErrUnsupported) {
		lock, err = nil, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open checkpoint %q: %w", path, err), dir.Close())
	}
	return &File{dir: dir, name: name, lock: lock}, nil
}

// Load returns the last saved mark, or the zero position without ranges if none was saved. The
// returned mark is durable. Load returns an error if the file is damaged, unreadable, or written by
// a newer program, and leaves the file unchanged.
func (f *File) Load(ctx context.Context) (watermark ledger.Position, above []ledger.Range,
	err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(ctx); err != nil {
		return watermark, nil, fmt.Errorf("load checkpoint %s: %w", f.path(), err)
	}
	text, err := f.read()
	if errors.Is(err, fs.ErrNotExist) {
		return watermark, nil, nil
	}
	if err == nil {
		// The program that renamed the file may have been killed before it synced the directory. A
		// power loss must not undo the mark from which the caller resumes.
		err = f.dir.Sync()
	}
	if err != nil {
		return watermark, nil, fmt.Errorf("load checkpoint %s: %w", f.path(), err)
	}
	watermark, above, err = Decode(text)
	switch {
	case errors.Is(err, errNewer):
		return watermark, nil, fmt.Errorf("checkpoint %s: %w: "+
			"run that one, or move the file away to deliver everything again", f.path(), err)
	case err != nil:
		return watermark, nil, fmt.Errorf(
			"checkpoint %s cannot be used, and was left as it is: %w: "+
				"put a copy of it back, or move it away to deliver everything again", f.path(), err)
	}
	return watermark, above, nil
}

func (f *File) read() ([]byte, error) {
	file, err := f.dir.Open(f.name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxSize+1))
}

// Save replaces the mark. It writes a new file beside the old one, syncs it, renames it over the
// old one and syncs the directory. When it returns nil, the mark survives a power loss. The ranges
// must be as returned by [ledger.Ledger.Progress]. Save does not retain their slice.
//
// After an error, the file has either the previous mark or the new one, and Save may be called
// again. There is one exception: if the directory could not be synced, it is unknown which mark the
// file has after a power loss. Every later Save and Load then returns this error.
func (f *File) Save(ctx context.Context, watermark ledger.Position, above []ledger.Range) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.usable(ctx)
	var text []byte
	if err == nil {
		text, err = Encode(watermark, above)
	}
	if err == nil {
		err = f.replace(text)
	}
	if err != nil {
		return fmt.Errorf("save the mark at %v in checkpoint %s: %w", watermark, f.path(), err)
	}
	return nil
}

func (f *File) replace(text []byte) error {
	next := f.name + newSuffix
	if err := f.write(next, text); err != nil {
		return err
	}
	if err := f.dir.Rename(next, f.dir, f.name); err != nil {
		return errors.Join(err, f.dir.Remove(next))
	}
	if err := f.dir.Sync(); err != nil {
		f.failed = err
		return err
	}
	return nil
}

// write creates the file and makes its contents durable. It first removes a file left by an earlier
// Save instead of overwriting it, because unsynced parts of that file might never become durable.
func (f *File) write(name string, text []byte) error {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	file, err := f.dir.OpenFile(name, flags, fileMode)
	if errors.Is(err, fs.ErrExist) {
		if err := f.dir.Remove(name); err != nil {
			return err
		}
		file, err = f.dir.OpenFile(name, flags, fileMode)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, f.dir.Remove(name))
	}
	return nil
}

// usable returns an error if the file cannot be used now. The caller holds mu.
func (f *File) usable(ctx context.Context) error {
	switch {
	case f.closed:
		return ErrClosed
	case f.failed != nil:
		return f.failed
	}
	return ctx.Err()
}

func (f *File) path() string { return filepath.Join(f.dir.Path(), f.name) }

// Close closes the file and releases its lock. It saves nothing, and may be called again.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var err error
	if f.lock != nil {
		err = f.lock.Close()
	}
	return errors.Join(err, f.dir.Close())
}
