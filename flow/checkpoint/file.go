// Package checkpoint keeps one mark in a file, so that a crash resumes there: the watermark of a
// ledger and the settled ranges above it. It is the checkpoint of a
// [github.com/penstock-io/penstock/flow.Book].
//
// A [File] belongs to the one program that has it open. It is replaced whole by every Save,
// durably, so that a crash at any moment leaves the last mark that was saved or the one that was
// being saved. docs/formats/mark.md draws its lines.
//
// It never decides what is settled or when to save, never takes a file that it cannot read for an
// empty one, and starts no goroutine. What has many partitions wants a log instead, as the engine
// keeps one.
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

// Names of what stands beside the file.
const (
	newSuffix  = ".new"  // the next mark, while it is written
	lockSuffix = ".lock" // held while the file is open; it stays
	fileMode   = 0o600
)

// ErrClosed is returned by a File after Close.
var ErrClosed = errors.New("checkpoint: closed")

// File is a mark in a file. Its methods are safe for concurrent use.
type File struct {
	dir  vfs.Dir
	name string
	lock io.Closer // nil: the system has none

	mu     sync.Mutex // guards what follows, and is held over a Save
	failed error      // what poisoned it
	closed bool
}

// Open opens the checkpoint at path, whose folder must exist; the file need not. It locks it
// against other programs, by a file with .lock behind its name, until Close or the end of the
// process, however that ends: a second Open is refused (vfs.ErrLocked). Where the system has no
// locks, nothing keeps a second one off.
func Open(path string) (*File, error) { return OpenIn(vfs.OS(), path) }

// OpenIn is Open in another file system, such as that of a test.
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

// Load returns the mark that was saved last, and the zero position without ranges where none ever
// was. What it returns is durable. An error leaves the file as it is: it is damaged, or a newer
// program's, or could not be read.
func (f *File) Load(ctx context.Context) (watermark ledger.Position, above []ledger.Range, err error) {
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
		// Who renamed it may have been killed before he had synced the folder. What resumes from here
		// must not be thrown back behind it by a power loss.
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
		return watermark, nil, fmt.Errorf("checkpoint %s cannot be used, and was left as it is: %w: "+
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

// Save replaces the mark: it writes a new file beside the old one, syncs it, renames it over the
// old one and syncs the folder. When it returns nil, a power loss keeps the mark. After an error
// the mark before it is still there, or this one is, and Save may be called again; but where the
// folder could not be synced, nobody knows which one a power loss would leave, and every later call
// returns that error. above must be as [ledger.Ledger.Mark] gives it; it is not kept.
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

// write makes the file name, durable but for its name. One that an earlier Save left is thrown away
// first, not written over: what the system could not sync of it would be.
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

// usable needs mu.
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

// Close frees the file and its lock. It saves nothing, and may be called again.
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
