// Package deadletter keeps the records that will never be delivered, with the reason, in a file
// that people and programs can read (docs/formats/dead-letters.md), and stops a route that makes
// too many of them.
//
// A [Store] is one route's file, opened by the pipeline before the route runs. What Append has
// taken is durable when it returns; a letter is written once, a kill between two calls included. It
// never drops a letter: full is an error. A [Guard] is pure and counts.
package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// DefaultMaxBytes bounds a route's dead letters where its options do not.
const DefaultMaxBytes = 1 << 30

// ErrFull says that the letters do not fit the bound; the error's text names the file and the
// option.
var ErrFull = errors.New("dead letters are full")

// errClosed says that a Store was used after Close.
var errClosed = errors.New("the store is closed")

// Options of a Store.
type Options struct {
	Pipeline, Route string
	MaxBytes        int64 // of the file; 0 means DefaultMaxBytes
}

// Letter is one dead record.
type Letter struct {
	ID        string          // of the record; a second letter of the same id is not written
	Reason    string          // the same for all letters of a kind
	Detail    string          // what is true of this record alone; "" if nothing is
	Partition string          // its id
	File      string          // the partition's name: a file's, for files
	Position  stream.Position // just behind the record in its partition
	Attempts  int             // deliveries of its batch, 0 where it was refused before any
	Worker    string          // that refused it; "" where a processor or the reader did
	Record    []byte          // its text
}

// Store appends letters to one file. It is safe for concurrent use.
type Store struct {
	dir   vfs.Dir
	name  string
	o     Options
	turn  chan struct{} // holds one token: who has it owns what follows
	file  vfs.File      // nil: to be opened again
	size  int64         // of what is durable
	known *recentIDs
	buf   bytes.Buffer
	aside string // see SetAside
	over  bool
}

// Open opens, and makes where missing (0600), the file of a route beneath dir, which the Store owns
// and closes from then on, also when Open fails. A line that a kill cut off is removed; it was
// never acknowledged.
func Open(dir vfs.Dir, o Options) (*Store, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	s := &Store{dir: dir, name: FileName(o.Pipeline, o.Route), o: o, turn: make(chan struct{}, 1), known: newRecentIDs(maxKnown)}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("dead letters %q: %w", s.path(), err), dir.Close())
	}
	return s, nil
}

func (s *Store) path() string { return filepath.Join(s.dir.Path(), s.name) }

// Path names the file, for messages.
func (s *Store) Path() string { return s.path() }

// SetAside names the file into which Open moved an end of the store that it could not read, for a
// warning; "" as a rule.
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
	s.file, s.size = f, size
	return nil
}

// Append writes the letters that were not written before, in order, and returns when they are
// durable; all of them, or, with an error, none. ErrFull: they do not fit, and the route has to
// stop. It waits for other Appends, at most until ctx is done.
func (s *Store) Append(ctx context.Context, letters []Letter) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("dead letters %q: %w", s.path(), context.Cause(ctx))
	}
	if err := s.append(letters); err != nil {
		return fmt.Errorf("dead letters %q: %w", s.path(), err)
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
		if err := letters[i].writeLine(to, s.o, now); err != nil {
			return err
		}
	}
	if s.buf.Len() == 0 {
		return nil
	}
	if s.size+int64(s.buf.Len()) > s.o.MaxBytes {
		return fmt.Errorf("%w: %d bytes are there and %d more do not fit dead_letters.max, %v; look at the reasons, move the file away "+
			"or raise the option, and start again", ErrFull, s.size, s.buf.Len(), stream.Size(s.o.MaxBytes))
	}
	if err := s.write(); err != nil {
		return err
	}
	for _, id := range added {
		s.known.add(id)
	}
	return nil
}

// write makes buf durable at the end of what is. After an error the handle is not trusted any more:
// the next write opens the file again and cuts it back.
func (s *Store) write() (err error) {
	if s.file == nil {
		if err := s.reopen(); err != nil {
			return err
		}
	}
	if _, err = s.file.Write(s.buf.Bytes()); err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		f := s.file
		s.file = nil
		return errors.Join(err, f.Close())
	}
	s.size += int64(s.buf.Len())
	return nil
}

func (s *Store) reopen() error {
	f, err := s.dir.OpenFile(s.name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size < s.size {
		err = fmt.Errorf("it has %d bytes where %d were durable: somebody cut it; move it away and start again", info.Size, s.size)
	}
	if err == nil {
		err = f.Truncate(s.size)
	}
	if err == nil {
		_, err = f.Seek(s.size, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.file = f
	return nil
}

// Close frees the file and the directory. It may be called twice.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.over {
		return nil
	}
	s.over = true
	var err error
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	return errors.Join(err, s.dir.Close())
}
