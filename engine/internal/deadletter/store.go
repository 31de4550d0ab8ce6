// Package deadletter stores refused records of a route, with the reason, in a file that people and
// programs can read. See docs/formats/dead-letters.md.
//
// A [Store] is the file of one route. Letters are durable when Append returns nil. After a kill,
// the source may repeat records that are already letters. The Store finds the ids of these letters
// in the last 64 MiB of its file, and does not write them again. If the file is full, Append
// returns [ErrFull], and the route fails until there is room.
//
// A [Guard] counts dead letters, and decides when a route has too many of them and must stop. It
// reads no clock and does no I/O.
package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// DefaultMaxBytes is the default maximum size of a route's dead letters.
const DefaultMaxBytes = 1 << 30

// dirMode is the mode of a new directory of dead letters.
const dirMode = 0o700

// ErrFull means that the letters do not fit into the maximum size. The error of Append also
// contains the path of the file and the name of the option.
var ErrFull = errors.New("dead letters are full")

// errClosed means that a Store was used after Close.
var errClosed = errors.New("the store is closed")

// Options of a Store.
type Options struct {
	Pipeline, Route string
	MaxBytes        int64 // maximum size of the file; 0 means DefaultMaxBytes
}

// Letter is one dead-lettered record.
type Letter = stream.DeadLetter

// Store appends letters to one file. It is safe for concurrent use.
type Store struct {
	files vfs.FS
	path  string // of the directory
	name  string // of the file
	o     Options
	turn  chan struct{} // buffer of 1, used as a mutex: guards the fields below
	dir   vfs.Dir       // open until Close
	file  vfs.File      // open until Close
	size  int64         // size of the durable part
	torn  bool          // a write has failed, so that file may be longer than size
	known recentIDs
	buf   bytes.Buffer
	aside string // see SetAside
	over  bool
}

// Open opens the file of a route in the directory at path. If there is no directory or file, it
// creates them with the modes 0700 and 0600. A kill may have left an incomplete letter at the end.
// Open removes it, because its Append has not returned. For other damage see [Store.SetAside].
func Open(files vfs.FS, path string, o Options) (*Store, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	dir, err := files.MakeDir(path, dirMode)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	s := &Store{files: files, path: path, dir: dir, name: FileName(o.Pipeline, o.Route), o: o,
		turn: make(chan struct{}, 1), known: recentIDs{set: make(map[idHash]struct{})}}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("dead letters %q: %w", s.Path(), err), dir.Close())
	}
	return s, nil
}

// Path returns the path of the file, for messages.
func (s *Store) Path() string { return filepath.Join(s.path, s.name) }

// SetAside returns the path of the file to which Open has moved unreadable lines from the end of
// the store, or "" if there were none.
func (s *Store) SetAside() string { return s.aside }

func (s *Store) open() error {
	f, err := s.dir.OpenFile(s.name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	size, err := s.repair(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = s.dir.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.file, s.size, s.torn = f, size, false
	return nil
}

// Append writes the letters in order and returns when they are durable. It omits letters with an id
// among the last maxKnown ids that Open has found or Append has written. If the letters do not
// fit, the error is ErrFull. A later Append can succeed if the file was moved away. After any
// error, none of the letters counts as written. While another call is running, Append waits until
// that call has returned or ctx is done.
func (s *Store) Append(ctx context.Context, letters []Letter) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("dead letters %q: %w", s.Path(), context.Cause(ctx))
	}
	if err := s.append(letters); err != nil {
		return fmt.Errorf("dead letters %q: %w", s.Path(), err)
	}
	return nil
}

func (s *Store) append(letters []Letter) error {
	if s.over {
		return errClosed
	}
	now := time.Now()
	s.buf.Reset()
	to := json.NewEncoder(&s.buf)
	to.SetEscapeHTML(false)
	var added []idHash
	twice := make(map[idHash]bool, len(letters))
	for i := range letters {
		id := hashOf(letters[i].ID)
		if s.known.has(id) || twice[id] {
			continue
		}
		twice[id] = true
		added = append(added, id)
		if err := writeLine(to, &letters[i], s.o, now); err != nil {
			return err
		}
	}
	if s.buf.Len() == 0 {
		return nil
	}
	if err := s.prepare(); err != nil {
		return err
	}
	if s.size+int64(s.buf.Len()) > s.o.MaxBytes {
		return fmt.Errorf("%w: %d bytes and %d more exceed dead_letters.max, %v; check the "+
			"reasons, then move the file away or raise the option", ErrFull, s.size, s.buf.Len(),
			stream.Size(s.o.MaxBytes))
	}
	if err := s.write(); err != nil {
		return err
	}
	for _, id := range added {
		s.known.add(id)
	}
	return nil
}

// prepare makes the file ready for a write. It removes the letters of a failed write. If another
// program has removed, renamed, replaced or extended the file, prepare opens the file with its name
// in the directory, or creates it. So the letters are in the file that readers open. If another
// program has moved the directory or truncated the file, prepare returns an error.
func (s *Store) prepare() error {
	if err := s.checkDir(); err != nil {
		return err
	}
	own, err := s.file.Stat()
	if err != nil {
		return err
	}
	if s.torn && own.Size > s.size {
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
	}
	named, err := s.dir.Stat(s.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	appended := !s.torn && own.Size > s.size // by another program
	if err != nil || named.Dev != own.Dev || named.Ino != own.Ino || appended {
		moved := s.file
		if err := s.open(); err != nil {
			return err
		}
		return moved.Close()
	}
	if own.Size < s.size {
		return fmt.Errorf("it has %d bytes, but %d were durable: another program truncated it; "+
			"the next start appends to the rest", own.Size, s.size)
	}
	if s.torn {
		_, err = s.file.Seek(s.size, io.SeekStart)
	}
	return err
}

var errMoved = errors.New("its directory was renamed, removed or replaced: the route must " +
	"restart, to use the directory that has this path now")

// checkDir returns errMoved if the open directory does not have the path of the store any more,
// because readers would not find the letters.
func (s *Store) checkDir() error {
	at, err := s.files.OpenDir(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return errMoved
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil // the open directory is usable without a descriptor for a second one
	case err != nil:
		return err
	}
	defer func() { _ = at.Close() }() // nothing was written with it
	own, err := s.dir.Stat(".")
	if err != nil {
		return err
	}
	named, err := at.Stat(".")
	if err == nil && (own.Dev != named.Dev || own.Ino != named.Ino) {
		err = errMoved
	}
	return err
}

// write appends the buffer to the file and makes it durable.
func (s *Store) write() error {
	s.torn = true // until the buffer is durable
	if _, err := s.file.Write(s.buf.Bytes()); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.torn = false
	s.size += int64(s.buf.Len())
	return nil
}

// Close closes the file and the directory. It may be called twice.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.over {
		return nil
	}
	s.over = true
	return errors.Join(s.file.Close(), s.dir.Close())
}
