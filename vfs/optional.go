package vfs

import (
	"bytes"
	"fmt"
)

// GatherWriter is implemented by a File that writes several buffers with one system call.
type GatherWriter interface {
	// WriteParts writes parts in their order at the file's offset and does not retain them. After
	// an error an unknown number of their bytes has been written.
	WriteParts(parts [][]byte) error
}

// Reserver is implemented by a File that can reserve disk space.
type Reserver interface {
	// Reserve allocates disk space for length bytes, beginning at the offset from, without changing
	// the file's size.
	Reserve(from, length int64) error
}

// WriteBacker is implemented by a File that can write cached data to disk in the background.
type WriteBacker interface {
	// WriteBack starts writing the cached bytes in the range [from, to). It may block while the
	// disk's queue is full.
	WriteBack(from, to int64) error
}

// RegularOpener is implemented by a Dir that can open a file with fewer checks, if the caller has
// just listed the file.
type RegularOpener interface {
	// OpenRegular is Open for a name that the caller has just seen to be a regular file. It checks
	// only the opened file, not the name before the open. If a device or FIFO has taken the name
	// meanwhile, OpenRegular fails like Open. But it opens the device or FIFO for a moment, which
	// may have effects.
	OpenRegular(name string) (File, error)
}

// OpenStater is implemented by a File that may already have the result of a Stat, made when the
// file was opened. Callers then need no Stat of their own.
type OpenStater interface {
	// OpenInfo returns the result of the Stat that was made when the file was opened. ok is false
	// if none was made.
	OpenInfo() (info Info, ok bool)
}

// OpenRegular opens a file that the caller has just seen to be a regular one in d; see
// [RegularOpener].
func OpenRegular(d interface {
	Open(name string) (File, error)
}, name string) (File, error) {
	if o, ok := d.(RegularOpener); ok {
		return o.OpenRegular(name)
	}
	return d.Open(name)
}

// WriteParts writes parts to f as one Write of their concatenation would, and does not retain them.
// It copies several parts into one buffer unless f is a [GatherWriter]. After an error an unknown
// number of their bytes has been written. It is not safe for concurrent use with other writes to f.
func WriteParts(f File, parts [][]byte) error {
	if g, ok := f.(GatherWriter); ok {
		return g.WriteParts(parts)
	}
	if len(parts) == 1 {
		return write(f, parts[0])
	}
	return write(f, bytes.Join(parts, nil))
}

func write(f File, p []byte) error {
	n, err := f.Write(p)
	if err == nil && n < len(p) {
		return fmt.Errorf("write %d bytes: only %d were written", len(p), n)
	}
	return err
}

// Reserve allocates disk space for length bytes of f, beginning at the offset from. This makes
// later writes there cheaper. The file's size does not change. Reserve reports whether the space
// was allocated. False is harmless, because writes do not need the space to be reserved. Possible
// reasons are that f is no [Reserver], that the file system does not support it, and that the disk
// is full. Truncating f to its own size frees unused space. Reserve is safe for concurrent use.
func Reserve(f File, from, length int64) bool {
	r, ok := f.(Reserver)
	return ok && length > 0 && r.Reserve(from, length) == nil
}

// WriteBack starts writing the bytes of f in the range [from, to) to disk, in the background. A
// later Sync then has less to do. WriteBack itself makes nothing durable, and errors of the disk
// are returned by Sync. It reports whether the writing was started. False is harmless. Then f is no
// [WriteBacker], the range is empty, or the system refused. WriteBack may block while the disk's
// queue is full, and is safe for concurrent use.
func WriteBack(f File, from, to int64) bool {
	w, ok := f.(WriteBacker)
	return ok && from < to && w.WriteBack(from, to) == nil
}
