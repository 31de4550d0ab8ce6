package spooldir

import (
	"bytes"
	"io"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// place is the directory in which a file lies.
type place uint8

const (
	inSpool place = iota
	inMoved
	nowhere // deleted: only a handle leads to it
)

// tailSize is how many of the bytes before the cursor are compared when a file has changed.
const tailSize = 32

// file is what one reader knows of one file.
type file struct {
	name  string
	where place
	info  vfs.Info
	since time.Duration // monotonic: size and time of the last change are as they are since then
	scan  uint64        // the last listing in which it was seen

	entry  *entry // nil: not identified yet
	part   *penstock.Partition
	cursor lines.Cursor
	looked time.Duration // when the handle was last asked for its size
	handle vfs.File
	used   uint64        // of the handle, for the least recently used
	unread time.Duration // monotonic: since when bytes have been waiting to be read, 0: none are

	drained int64 // of this size all whole records were handed out

	sealed   bool
	last     int64 // where it was sealed
	orphan   bool  // its name is gone, it is read to the end by its handle
	lost     bool  // what was not read is gone: only the seal is left to be handed out
	finished bool  // Finish has been done; it is looked at again in case its writer goes on
	checked  bool  // tail and stamp below are valid
	stampAt  time.Time
	stampLen int64
	tail     [tailSize]byte
	tailLen  uint8

	failures backoff.State
	retryAt  time.Duration
	failed   error // the last failure, until the file was read again
	checks   uint8 // of a finished file
	nextLook time.Duration
}

func keyOf(i vfs.Info) fileid.Key { return fileid.Key{Dev: i.Dev, Ino: i.Ino} }

// sameFile says whether two stats are of one file, as far as a stat tells.
func sameFile(a, b vfs.Info) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && (a.Birth.Equal(b.Birth) || a.Birth.IsZero() || b.Birth.IsZero())
}

// saw takes a new stat; size or time of the last change may have changed.
func (f *file) saw(i vfs.Info, now time.Duration) {
	if i.Size != f.info.Size || !i.ModTime.Equal(f.info.ModTime) {
		f.since = now
	}
	f.info = i
	if f.entry == nil || i.Size > f.cursor.Next {
		if f.unread == 0 {
			f.unread = now
		}
	}
}

// seen is the file as fileid sees it. withTime is false for a file that we have followed: a later change then says nothing.
func (f *file) seen(head []byte, withTime bool) fileid.File {
	out := fileid.File{Dev: f.info.Dev, Ino: f.info.Ino, Size: f.info.Size, Head: head}
	if !f.info.Birth.IsZero() {
		out.Birth = f.info.Birth.UnixNano()
	}
	if withTime {
		out.ModTime = f.info.ModTime.UnixNano()
	}
	return out
}

// readHead reads what an id hashes.
func (f *file) readHead(buf []byte) ([]byte, error) {
	n := int(min(f.info.Size, int64(len(buf))))
	got, err := f.handle.ReadAt(buf[:n], 0)
	if got < n {
		if err == io.EOF || err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf[:n], nil
}

// remember keeps the bytes before the cursor, which end b's data unless a line end was added, so that a file that was rewritten
// in place is noticed.
func (f *file) remember(b *penstock.Batch) {
	f.checked, f.tailLen = true, 0
	f.stampAt, f.stampLen = f.info.ModTime, f.info.Size
	n := len(b.Spans)
	if n == 0 || b.Spans[n-1].Part != f.part {
		return
	}
	s := &b.Spans[n-1]
	if plain := s.To.Num-s.From.Num == int64(s.Bytes); plain {
		f.tailLen = uint8(copy(f.tail[:], b.Data[len(b.Data)-min(s.Bytes, tailSize):]))
	}
}

// unchanged says whether what was handed out still stands in the file: the head is that of the id, the bytes before the cursor
// are those that were read.
func (f *file) unchanged(buf []byte) (bool, error) {
	head, err := f.readHead(buf)
	if err != nil {
		return false, err
	}
	if !f.entry.id.Match(f.seen(head, false)) {
		return false, nil
	}
	if n := int(f.tailLen); n > 0 {
		got, err := f.handle.ReadAt(buf[:n], f.cursor.Next-int64(n))
		if got < n {
			if err == io.EOF || err == nil {
				err = io.ErrUnexpectedEOF
			}
			return false, err
		}
		return bytes.Equal(buf[:n], f.tail[:n]), nil
	}
	return true, nil
}

// changed says whether the file was written since remember.
func (f *file) changed() bool {
	return !f.checked || f.stampLen != f.info.Size || !f.stampAt.Equal(f.info.ModTime)
}

// close gives the handle back.
func (f *file) close() error {
	if f.handle == nil {
		return nil
	}
	err := f.handle.Close()
	f.handle = nil
	return err
}
