package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/vfs"
)

const (
	newName  = Name + ".new" // the next log while it is written
	fileMode = 0o600

	// snapshotFrame is the size in bytes at which a frame of a snapshot is complete. The next item
	// begins a new frame.
	snapshotFrame = 64 << 10

	// maxAside is the maximum number of copies with names of one form, such as Name.damaged-N.
	maxAside = 99
)

// replace writes the state as a new log, and replaces the old log by it. It writes the new log
// beside the old one, syncs it, renames it over the old one, and syncs the directory. So after a
// crash, the directory has either the old log or the complete new one.
//
// If the new log cannot be written or renamed, the old log remains in use, and replace returns the
// error. Otherwise the new log is in use, and replace returns nil. If the directory then cannot be
// synced, nothing can be saved any more (see Failed). Once other goroutines can use s, the caller
// must hold the mutexes s.syncing and s.writing.
func (s *Store) replace() error {
	next, size, err := s.writeNew()
	if err == nil {
		err = s.dir.Rename(newName, s.dir, Name)
	}
	if err != nil {
		if next != nil {
			err = errors.Join(err, next.Close(), s.dir.Remove(newName))
		}
		s.retry = s.size + s.slack()
		return fmt.Errorf("write a new %s: %w", s.path(), err)
	}
	if s.f != nil {
		if err := s.f.Close(); err != nil {
			s.warn(fmt.Errorf("close the old %s: %w", s.path(), err))
		}
	}
	s.f, s.size, s.synced, s.retry = next, size, size, 0
	s.generation++
	s.mu.Lock()
	s.st.renumber()
	s.mu.Unlock()
	if err := s.dir.Sync(); err != nil {
		s.failed = fmt.Errorf("sync the directory of %s after its rewrite: %w", s.path(), err)
	}
	return nil
}

func (s *Store) warn(err error) {
	if s.options.Warn != nil {
		s.options.Warn(err)
	}
}

// writeNew writes a file with the header and the snapshot of the next generation, and syncs it.
// Even after an error, it returns the file if the file was created.
func (s *Store) writeNew() (vfs.File, int64, error) {
	f, err := s.dir.OpenFile(newName, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, fileMode)
	if err != nil {
		return nil, 0, err
	}
	w := &snapshotWriter{f: f, generation: s.generation + 1}
	w.buf = framelog.AppendHeader(w.buf, magic, s.version, w.generation)
	for i, r := range s.st.alive() {
		w.route(r, i+1)
	}
	marks, places := s.st.size()
	w.frame(func(b []byte) []byte { return appendEnd(b, marks, places) })
	w.flush()
	if w.err == nil {
		w.err = f.Sync()
	}
	return f, w.written, w.err
}

// snapshotWriter writes frames to a file. It buffers them, to write several frames with one call.
// After an error it writes nothing more.
type snapshotWriter struct {
	f          vfs.File
	generation uint64
	written    int64
	buf        []byte
	sums       framelog.Summer
	err        error
}

// route writes the contents of a route in frames of about snapshotFrame bytes. number is the number
// of the route in the new file.
func (w *snapshotWriter) route(r *route, number int) {
	e := entry{key: r.key}
	size := int64(0)
	end := func() {
		w.frame(func(b []byte) []byte { return appendEntry(b, &e) })
		e.route, e.marks, e.places, size = number, e.marks[:0], e.places[:0], 0
	}
	for _, p := range r.live() {
		e.marks = append(e.marks, markOp{mark: p.mark, named: true})
		if size += markSize(&p.mark); size >= snapshotFrame {
			end()
		}
	}
	for _, l := range r.placed() {
		e.places = append(e.places, placeOp{name: l.name, place: l.place})
		if size += laneSize(l.place, l.name); size >= snapshotFrame {
			end()
		}
	}
	if len(e.marks)+len(e.places) > 0 {
		end()
	}
}

// frame adds a frame to the buffer. payload appends the contents of the frame to its argument.
func (w *snapshotWriter) frame(payload func([]byte) []byte) {
	start := len(w.buf)
	w.buf = payload(append(w.buf, make([]byte, frameHead)...))
	if w.err == nil {
		w.err = w.sums.Seal(w.buf[start:], w.generation, w.written+int64(start))
	}
	if len(w.buf) >= readBuffer {
		w.flush()
	}
}

func (w *snapshotWriter) flush() {
	if w.err == nil {
		_, w.err = w.f.Write(w.buf)
	}
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
}

// Backup makes a durable copy of the log in its directory and returns the name of the copy. It is
// called before an operator changes the stored progress.
func (s *Store) Backup() (string, error) {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.usable(); err != nil {
		return "", err
	}
	name, err := setAside(s.dir, s.f, "before")
	if err != nil {
		return "", fmt.Errorf("keep a copy of %s: %w", s.path(), err)
	}
	return name, nil
}

// setAside makes a durable copy of a file in the same directory. The copy gets the first unused
// name Name.KIND-N, for N up to maxAside, and setAside returns this name. It does not rename the
// file, which therefore exists at all times.
func setAside(dir vfs.Dir, from vfs.File, kind string) (string, error) {
	for n := 1; n <= maxAside; n++ {
		name := fmt.Sprintf("%s.%s-%d", Name, kind, n)
		to, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		info, err := from.Stat()
		if err == nil {
			_, err = io.Copy(to, io.NewSectionReader(from, 0, info.Size))
		}
		if err == nil {
			err = to.Sync()
		}
		if err = errors.Join(err, to.Close()); err == nil {
			err = dir.Sync()
		}
		if err != nil {
			return "", errors.Join(err, dir.Remove(name))
		}
		return name, nil
	}
	return "", fmt.Errorf("there are %d copies already, up to %s.%s-%d: remove some", maxAside,
		Name, kind, maxAside)
}
