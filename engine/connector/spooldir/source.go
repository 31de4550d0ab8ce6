// Package spooldir reads the files that are put into a directory: the source spool_dir.
//
// It lists the directory, gives each file an identity that does not depend on its name (package fileid), cuts it
// into aligned batches (package lines), seals it when it has been quiet, and renames, deletes or moves it when
// everything in it is settled. Its owner is the engine, which opens one reader a route. It never follows a symlink, never
// changes what a file holds, never renames over another file, and hides nothing: a file that grows, shrinks, vanishes
// or is replaced is read as far as it can be, and reported.
package spooldir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// source is what the readers of all routes share: the directory, its lock, and which id each file has.
type source struct {
	o     Options
	h     penstock.Host
	log   *slog.Logger
	names names
	start time.Time // zero of the monotonic clock

	// finishing serialises Finish, and is held from the change of a file's name until the readers have been told. It is taken before mu.
	finishing sync.Mutex

	// syncing is held while the directory is synced or closed. It is taken before mu.
	syncing sync.Mutex

	mu      sync.Mutex // guards what follows; files are touched while it is held only when the directory is opened or closed
	users   int        // open readers and running calls of Finish
	dir     vfs.Dir
	moved   vfs.Dir // finished: move
	lock    io.Closer
	stop    chan struct{} // closed to end the watcher; nil: there is none
	clock   clock
	readers []*reader
	byID    map[string]*entry
	byKey   map[fileid.Key]*entry // the one that was made last
	unsync  bool                  // names were changed since the last sync
}

// entry is a file that has an id.
type entry struct {
	id   fileid.ID
	text string // of id
	name string // where it was seen last
	refs int    // readers that know it
	dead bool   // what it named is gone, although the inode may live on
	done bool   // renamed, moved or deleted; name is where it went
	grew bool   // it was sealed, and more came

	sealed []sealing
}

// sealing is where one reader has sealed a file.
type sealing struct {
	r  *reader
	at int64
}

func newSource(o Options, h penstock.Host) (*source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &source{
		o: o, h: h, log: h.Log().With("path", o.Path), start: time.Now(),
		names: names{include: o.Include, exclude: o.Exclude, suffix: o.Suffix},
		byID:  make(map[string]*entry), byKey: make(map[fileid.Key]*entry),
	}, nil
}

// now is the monotonic time since the source was made.
func (s *source) now() time.Duration { return time.Since(s.start) }

// Open implements penstock.Source.
func (s *source) Open(ctx context.Context, o penstock.OpenOptions) (penstock.Reader, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	r := newReader(s, o)
	s.mu.Lock()
	s.readers = append(s.readers, r)
	if s.stop == nil {
		s.watchLocked()
	}
	s.mu.Unlock()
	return r, nil
}

// acquire opens and locks the directory for the first of its users.
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
	s.clock = clock{settle: s.o.Settle}
	if info, err := dir.Stat(lockName); err == nil {
		s.clock.calibrate(time.Now().UnixNano(), info.ModTime.UnixNano())
	}
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

// done gives back what acquire took; the last user syncs and closes the directory and gives up the lock.
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
	if s.users--; s.users > 0 { // somebody came meanwhile
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

// drop takes r off the list of readers.
func (s *source) drop(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = slices.DeleteFunc(s.readers, func(o *reader) bool { return o == r })
}

// quietAt is the monotonic time at which a file will have been quiet for settle.
func (s *source) quietAt(mtime time.Time, since time.Duration) (at, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := time.Now()
	now = t.Sub(s.start)
	s.clock.look(now, t.UnixNano())
	return s.clock.quietAt(now, t.UnixNano(), mtime.UnixNano(), since), now
}

// identify finds the id of a file, or gives it one: among the files that readers know already, in what r's route has
// stored, in what other routes have, and else a new one. The entry is r's until it calls forget.
func (s *source) identify(r *reader, f fileid.File, name string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findLocked(r, f)
	if e == nil {
		gen := s.nextGenLocked(f)
		id := fileid.New(f, func(id fileid.ID) bool { return int64(id.Gen) < gen })
		e = s.entryLocked(id)
	}
	e.refs++
	e.name = name
	return e
}

func (s *source) findLocked(r *reader, f fileid.File) *entry {
	for _, id := range r.known[f.Key()] {
		if id.Match(f) {
			return s.entryLocked(id)
		}
	}
	if e := s.byKey[f.Key()]; e != nil && !e.dead && e.id.Match(f) {
		return e
	}
	for _, o := range s.readers {
		for _, id := range o.known[f.Key()] {
			if id.Match(f) {
				return s.entryLocked(id)
			}
		}
	}
	return nil
}

func (s *source) entryLocked(id fileid.ID) *entry {
	text := id.String()
	e := s.byID[text]
	if e == nil {
		e = &entry{id: id, text: text}
		s.byID[text] = e
	}
	s.byKey[id.Key()] = e
	return e
}

// nextGenLocked is the lowest generation that no id of this inode and birth has had.
func (s *source) nextGenLocked(f fileid.File) (gen int64) {
	above := func(id fileid.ID) {
		if id.Birth == f.Birth {
			gen = max(gen, int64(id.Gen)+1)
		}
	}
	if e := s.byKey[f.Key()]; e != nil {
		above(e.id)
	}
	for _, o := range s.readers {
		for _, id := range o.known[f.Key()] {
			above(id)
		}
		for _, id := range o.dead[f.Key()] {
			above(id)
		}
	}
	return gen
}

// kill says that what e named is gone: no file is taken for it any more.
func (s *source) kill(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.dead = true
	for _, r := range s.readers {
		same := func(id fileid.ID) bool { return id == e.id }
		if key := e.id.Key(); slices.ContainsFunc(r.known[key], same) {
			r.known[key] = slices.DeleteFunc(r.known[key], same)
			r.dead[key] = append(r.dead[key], e.id)
		}
	}
}

func (s *source) isDead(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.dead
}

// forget gives back what identify gave.
func (s *source) forget(r *reader, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsealLocked(r, e)
	if e.refs--; e.refs > 0 {
		return
	}
	delete(s.byID, e.text)
	if s.byKey[e.id.Key()] == e && !e.dead {
		delete(s.byKey, e.id.Key())
	}
}
