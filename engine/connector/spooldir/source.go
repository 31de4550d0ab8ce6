// Package spooldir implements the source spool_dir, which reads files that other programs put into
// a directory.
//
// It lists the directory repeatedly. When a file has not changed for a while and all its data is
// settled (delivered, dead-lettered or dropped), the source renames, deletes, moves or keeps it, as
// the option `finished` says. Package engine/kit/follow recognizes files and reads them into
// batches. The engine opens one reader per route.
//
// Beneath the directory, the source never follows a symlink. It never changes the content of the
// files that it reads, and never overwrites a file by a rename. If a file shrinks, disappears or is
// replaced before all of it is read, the source reads what it can, and reports this.
package spooldir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// source is the state that the readers of all routes share: the directory and its lock.
type source struct {
	o        Options
	h        stream.Host
	log      *slog.Logger
	names    names
	set      *follow.Catalogue
	finisher follow.Finisher

	// syncing is held while the directory is synced or closed. Lock it before mu.
	syncing sync.Mutex

	// mu guards the fields below. It is held during file operations only while the directory is
	// opened or closed.
	mu     sync.Mutex
	users  int // number of open readers and running calls of Finish
	dir    vfs.Dir
	moved  vfs.Dir // finished: move
	lock   io.Closer
	stop   chan struct{}   // closed to end the goroutines of watchLocked; nil if there are none
	unsync map[string]bool // subdirectories with names that were changed since the last sync
}

func newSource(o Options, h stream.Host) (*source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &source{
		o: o, h: h, log: h.Log().With("path", o.Path), unsync: make(map[string]bool),
		names: names{include: o.Include, exclude: o.Exclude, suffix: o.Suffix},
	}
	to := follow.Options{
		ByName: o.Order == "name", Settle: o.quietPeriod(), Watch: o.Watch,
		Keep: o.Finished == finishedKeep,
	}
	if err := o.Into(&to); err != nil {
		return nil, err
	}
	s.set = follow.New(place{s}, to, h, s.log)
	s.finisher = follow.NewFinisher(s.set)
	h.Count("files_finished", 0)
	return s, nil
}

// reader reads for one route. While it is open, the directory stays open.
type reader struct {
	*follow.Reader
	s      *source
	closed bool
}

// Open implements stream.Source. It opens a reader for one route.
func (s *source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	meta, err := origin.New(s.o.Meta, filepath.ToSlash(s.o.Path))
	if err != nil {
		return nil, err
	}
	if err := s.acquire(); err != nil {
		return nil, err
	}
	r := &reader{Reader: s.set.Open(o), s: s}
	r.Origin = meta
	s.mu.Lock()
	if s.stop == nil {
		s.watchLocked(o.Once)
	}
	s.mu.Unlock()
	return r, nil
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	err := r.Reader.Read(ctx, b)
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return fmt.Errorf("%q: %w", r.s.o.Path, err)
	}
	return err
}

// CanReadRanges implements stream.RangeReader. It reports whether ReadRanges can read the file with
// this partition id.
func (r *reader) CanReadRanges(id string) bool { return follow.CanReadRanges(r.Reader, id) }

// ReadRanges implements stream.RangeReader.
func (r *reader) ReadRanges(_ context.Context, b *stream.Batch, p stream.Partition, ranges []stream.Range) error {
	return follow.ReadRanges(r.Reader, b, p, ranges)
}

// Close implements stream.Reader.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return errors.Join(r.Reader.Close(), r.s.done())
}

// acquire begins a use of the directory. For the first use, it opens and locks the directory.
func (s *source) acquire() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 {
		s.users++
		return nil
	}
	dir, err := s.h.FS().OpenDir(s.o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%q: the directory does not exist; make it, or correct path: %w", s.o.Path, err)
	} else if err != nil {
		return fmt.Errorf("%q: open the directory: %w", s.o.Path, err)
	}
	s.dir = dir
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeLocked())
		}
	}()
	if s.lock, err = dir.Lock(lockName, fmt.Sprintf("penstock, process %d", os.Getpid())); err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("%q: another instance reads it and holds %s; stop it, or give each one a directory: %w",
				s.o.Path, lockName, err)
		}
		return fmt.Errorf("%q: take the lock %s (the directory has to be writable): %w", s.o.Path, lockName, err)
	}
	if s.o.Finished == finishedMove {
		if err := s.openMoved(); err != nil {
			return err
		}
	}
	mtime := time.Now()
	if info, err := dir.Stat(lockName); err == nil {
		mtime = info.ModTime
	}
	s.set.Calibrate(mtime)
	s.set.CheckLimit()
	s.users = 1
	return nil
}

func (s *source) openMoved() (err error) {
	if s.moved, err = s.h.FS().MakeDir(s.o.MoveTo, 0o700); err != nil {
		return fmt.Errorf("%q: open move_to: %w", s.o.Path, err)
	}
	here, err := s.dir.Stat(".")
	if err != nil {
		return fmt.Errorf("%q: %w", s.o.Path, err)
	}
	there, err := s.moved.Stat(".")
	if err != nil {
		return fmt.Errorf("%q: move_to: %w", s.o.Path, err)
	}
	if here.Dev != there.Dev {
		return fmt.Errorf("%q: move_to %q is on another file system, where a file cannot be moved at once; "+
			"choose a directory beside path", s.o.Path, s.o.MoveTo)
	}
	if here.Ino == there.Ino && here.Ino != 0 {
		return fmt.Errorf("%q: move_to %q is the same directory", s.o.Path, s.o.MoveTo)
	}
	return nil
}

// done ends a use of the directory that acquire has begun. After the last use, it syncs and closes
// the directory, and releases the lock.
func (s *source) done() error {
	s.mu.Lock()
	if s.users > 1 {
		s.users--
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	err := s.sync()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 { // another use has begun meanwhile
		return err
	}
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
	return errors.Join(err, s.closeLocked())
}

func (s *source) closeLocked() error {
	var errs []error
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	for _, d := range []vfs.Dir{s.moved, s.dir} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	s.lock, s.dir, s.moved = nil, nil, nil
	return errors.Join(errs...)
}
