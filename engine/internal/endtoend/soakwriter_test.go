package endtoend

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
)

// soakWriter writes and rotates the files of one name, like a daemon with logrotate. It never
// destroys lines that a receiver lacks: it truncates or deletes a file only after the lines are
// delivered, or else skips the action and counts it. It renames a file out of the globs only after
// the program has certainly recorded the file. Otherwise the program might never learn of the
// lines, because no glob of the config matches the new name.
type soakWriter struct {
	index     int
	dir       string
	archive   string // folder for compressed files; "" leaves them in place, within the globs
	delivered func(who, upTo int) bool
	known     func(who, upTo int) bool // delivered and certainly saved
	begun     int                      // number of the first line in the current file
	count     *soakCounts

	next    atomic.Int64 // number of the next line
	file    *os.File     // kept open like a daemon does
	dates   int          // number of dated names created
	rotated []soakFile   // oldest first
}

// soakFile is a complete file.
type soakFile struct {
	name string
	upTo int // number of the line after it
	done bool
}

// soakCounts counts the actions of the writers.
type soakCounts struct {
	bytes, rotated, truncated, compressed, deleted, leftOut atomic.Int64
}

func (w *soakWriter) path(name string) string { return filepath.Join(w.dir, name) }

// name returns the name of the current file.
func (w *soakWriter) name() string {
	if w.index%rotations == byDate {
		return fmt.Sprintf("w%02d-2026-%05d.log", w.index, w.dates)
	}
	return fmt.Sprintf("w%02d.log", w.index)
}

// lines returns the next n lines.
func (w *soakWriter) lines(n int) []byte {
	var text []byte
	for range n {
		number := int(w.next.Load())
		text = soakLine(text, w.index, number, number*7919%160)
		w.next.Add(1)
	}
	w.count.bytes.Add(int64(len(text)))
	return text
}

// run performs the writer's steps, each at its time or as soon as the previous one has ended.
func (w *soakWriter) run(ctx context.Context, begun time.Time, steps []soakStep) error {
	for _, s := range steps {
		if !soakWait(ctx, time.Until(begun.Add(s.At))) {
			break
		}
		if err := w.step(ctx, s); err != nil {
			return fmt.Errorf("writer %d, %s: %w", w.index, s.Do, err)
		}
	}
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// soakWait returns after d; false means that the soak has ended before.
func soakWait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *soakWriter) step(ctx context.Context, s soakStep) error {
	switch s.Do {
	case actWrite:
		return w.write(w.lines(s.N))
	case actPiece:
		text := w.lines(1)
		half := 9 + (len(text)-9)*s.N%max(1, len(text)-10)
		if err := w.write(text[:half]); err != nil {
			return err
		}
		soakWait(ctx, time.Duration(s.N)*time.Millisecond)
		return w.write(text[half:])
	case actRotate:
		return w.rotate(s.N)
	case actTruncate:
		return w.truncate(ctx)
	case actCompress:
		return w.compress(s.N%2 == 0)
	case actDelete:
		return w.delete()
	default:
		return w.spool(ctx, s)
	}
}

func (w *soakWriter) write(text []byte) (err error) {
	if w.file == nil {
		if w.file, err = os.OpenFile(w.path(w.name()), os.O_WRONLY|os.O_CREATE|os.O_APPEND,
			0o644); err != nil {
			return err
		}
	}
	_, err = w.file.Write(text)
	return err
}

// rotate starts a new file. If it renames the old file, it still writes a number of lines (the
// parameter late) to it. If it copies and truncates the file, it writes nothing between the copy
// and the truncation, because such lines would be lost.
func (w *soakWriter) rotate(late int) error {
	if w.file == nil {
		return nil
	}
	method := w.index % rotations
	if method == byMove && !w.known(w.index, w.begun+1) {
		w.count.leftOut.Add(1)
		return nil
	}
	w.count.rotated.Add(1)
	name := w.name()
	switch method {
	case byRename, byCopy:
		if err := w.shift(name); err != nil {
			return err
		}
	case byDate, byMove:
		w.dates++
	}
	old := name + ".1"
	var err error
	switch method {
	case byRename:
		err = os.Rename(w.path(name), w.path(old))
	case byCopy:
		if err = soakCopy(w.path(name), w.path(old)); err == nil {
			err = w.file.Truncate(0)
		}
		w.rotated = append(w.rotated, soakFile{name: old, upTo: int(w.next.Load())})
		return err
	case byMove:
		old = fmt.Sprintf("w%02d.old.%05d", w.index, w.dates)
		err = os.Rename(w.path(name), w.path(old))
	case byDate:
		old = name
	}
	if err == nil { // a daemon reopens its file late
		err = w.write(w.lines(late))
	}
	w.rotated = append(w.rotated, soakFile{name: old, upTo: int(w.next.Load())})
	err = errors.Join(err, w.file.Close())
	w.file, w.begun = nil, int(w.next.Load())
	return err
}

// shift frees name.1 as logrotate does, oldest file first.
func (w *soakWriter) shift(name string) error {
	for i := range w.rotated {
		f := &w.rotated[i]
		if f.done {
			continue
		}
		to := fmt.Sprintf("%s.%d", name, len(w.rotated)-i+1)
		if ext := filepath.Ext(f.name); ext == ".gz" || ext == ".zst" {
			to += ext
		}
		if err := os.Rename(w.path(f.name), w.path(to)); err != nil {
			return err
		}
		f.name = to
	}
	return nil
}

func soakCopy(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, in.Close(), out.Close())
}

// truncateWait bounds the wait of a truncation for the delivery of the lines it destroys.
const truncateWait = 10 * time.Second

func (w *soakWriter) truncate(ctx context.Context) error {
	if w.file == nil {
		return nil
	}
	for end := time.Now().Add(truncateWait); !w.delivered(w.index, int(w.next.Load())); {
		if time.Now().After(end) || !soakWait(ctx, 20*time.Millisecond) {
			w.count.leftOut.Add(1)
			return nil
		}
	}
	w.count.truncated.Add(1)
	return w.file.Truncate(0)
}

// compress compresses the oldest rotated file, and deletes the original. If the archive gets a name
// outside the globs, compress first makes sure that the program has delivered the file. If it has
// not, compress does nothing.
func (w *soakWriter) compress(gz bool) error {
	for i := range w.rotated {
		f := &w.rotated[i]
		if f.done || filepath.Ext(f.name) == ".gz" || filepath.Ext(f.name) == ".zst" {
			continue
		}
		if w.archive != "" && !w.delivered(w.index, f.upTo) {
			w.count.leftOut.Add(1)
			return nil
		}
		name := f.name + map[bool]string{true: ".gz", false: ".zst"}[gz]
		to := w.path(name)
		if w.archive != "" {
			to = filepath.Join(w.archive, fmt.Sprintf("%02d-%09d-%s", w.index, f.upTo, name))
		}
		if err := soakPack(w.path(f.name), to, gz); err != nil {
			return err
		}
		w.count.compressed.Add(1)
		err := os.Remove(w.path(f.name))
		if f.name = name; w.archive != "" {
			f.done = true
		}
		return err
	}
	return nil
}

// soakPack compresses like gzip and zstd: it writes to a temporary name outside the globs, and
// renames the complete archive.
func soakPack(from, to string, gz bool) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var packed strings.Builder
	var z io.WriteCloser = gzip.NewWriter(&packed)
	if !gz {
		if z, err = zstd.NewWriter(&packed); err != nil {
			return err
		}
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(to), ".packing-"+filepath.Base(to))
	if err := os.WriteFile(tmp, []byte(packed.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}

// delete removes the rotated files that all receivers have.
func (w *soakWriter) delete() error {
	for i := range w.rotated {
		f := &w.rotated[i]
		if f.done {
			continue
		}
		if !w.delivered(w.index, f.upTo) {
			w.count.leftOut.Add(1)
			return nil
		}
		path := w.path(f.name)
		// The program has renamed the finished file by adding a suffix. Delete the file under this
		// name, because another file may have its original name by now.
		if w.index >= soakTailers {
			found, err := filepath.Glob(path + ".done*")
			if err != nil || len(found) == 0 {
				w.count.leftOut.Add(1)
				return err
			}
			path = found[0]
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		f.done = true
		w.count.deleted.Add(1)
	}
	return nil
}

// settlePause is longer than the quiet period in the soak's config. If a file grows after such a
// pause, the program has already treated the file as finished.
const settlePause = 450 * time.Millisecond

// spool writes a complete file into the directory.
func (w *soakWriter) spool(ctx context.Context, s soakStep) error {
	w.dates++
	name := fmt.Sprintf("w%02d-%06d.log", w.index, w.dates)
	switch s.Do {
	case actSpool:
		tmp := w.path(name + ".tmp")
		if err := os.WriteFile(tmp, w.lines(s.N), 0o644); err != nil {
			return err
		}
		if err := os.Rename(tmp, w.path(name)); err != nil {
			return err
		}
	case actSame:
		name = fmt.Sprintf("w%02d.log", w.index)
		if _, err := os.Lstat(w.path(name)); err == nil {
			w.count.leftOut.Add(1) // the previous file still exists
			return nil
		}
		if err := os.WriteFile(w.path(name), w.lines(s.N), 0o644); err != nil {
			return err
		}
	case actSlow:
		file, err := os.OpenFile(w.path(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		for part := range 3 {
			if _, err := file.Write(w.lines(s.N/3 + 1)); err != nil {
				return err
			}
			pause := settlePause / 3
			if part == s.N%3 {
				pause = settlePause
			}
			if !soakWait(ctx, pause) {
				break
			}
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	w.rotated = append(w.rotated, soakFile{name: name, upTo: int(w.next.Load())})
	return nil
}
