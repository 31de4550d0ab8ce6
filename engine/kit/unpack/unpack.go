// Package unpack provides access to the content of a compressed file by byte offsets of the
// decompressed stream.
//
// A [File] decompresses forwards and keeps a bounded window of the decompressed data. For offsets
// before the window it starts again at the last known member before them, or at the beginning. It
// supports gzip with any number of concatenated members, and zstd with any number of frames and
// skippable frames. Its owner is one reader of one file. The owner opens and closes the input, and
// supplies a function to start a goroutine that decompresses ahead. The package opens nothing,
// waits only for that goroutine, and hides nothing: if a stream is truncated, damaged or a bomb,
// [File.Err] reports that, and the data before the fault can be read.
package unpack

import (
	"context"
	"errors"
	"io"
	"slices"
)

// Kind is the compression of a file.
type Kind uint8

// The kinds. Their texts are those of the key `compression`.
const (
	None Kind = iota
	Gzip
	Zstd
)

// String returns "none", "gzip" or "zstd".
func (k Kind) String() string { return [...]string{"none", "gzip", "zstd"}[k] }

// MaxMagic is the number of bytes of a file that Detect examines.
const MaxMagic = 4

// Detect determines the compression of a file from its first bytes. Two bytes of a magic number
// suffice, because only a compressed file that is being written begins with them.
func Detect(head []byte) Kind {
	begins := func(magic ...byte) bool {
		n := min(len(head), len(magic))
		return n >= 2 && slices.Equal(head[:n], magic[:n])
	}
	switch {
	case begins(0x1f, 0x8b, 8):
		return Gzip
	case begins(0x28, 0xb5, 0x2f, 0xfd):
		return Zstd
	case len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d &&
		head[3] == 0x18:
		return Zstd // a skippable frame
	}
	return None
}

const (
	// chunkSize is the unit of decompression. Handing a chunk to another goroutine that waits for
	// it costs about as much as decompressing 50 KiB.
	chunkSize = 512 << 10
	// headSize is the number of decompressed bytes kept from the start of the stream.
	headSize = 1024
	// windowMin is the minimum size of the window.
	windowMin = 2 * chunkSize
	// maxMarks bounds the number of recorded positions at which decompression can begin.
	maxMarks = 64
)

// Options of a File. The zero value decompresses on demand, and has no limit except that of the
// zstd window.
type Options struct {
	// MaxExpansion is the maximum number of decompressed bytes per compressed byte. It applies
	// after 64 MiB of decompressed data. Zero means no limit.
	MaxExpansion int
	// Go starts a goroutine that decompresses up to aheadChunks chunks ahead. Nil means no
	// decompression ahead. The goroutine ends with its context, with the stream, or with Close.
	Go func(name string, run func(context.Context) error)
	// Decoders holds decoders for reuse. Nil means that each File creates its own.
	Decoders *Decoders
}

// File is the content of a compressed file. It is not safe for concurrent use.
type File struct {
	kind Kind
	o    Options
	in   io.ReaderAt // compressed input; nil if closed
	size int64       // of it
	seen inputSeen   // the input read so far

	s      *stream // nil: start at the last mark at or before hi
	a      *ahead  // owns s, if not nil
	chunks [][]byte
	lo, hi int64 // the chunks hold the bytes from lo to hi
	free   [][]byte
	window int64 // bytes that chunks may hold
	run    int64 // bytes since the stream was started
	used   int64 // bytes of the input read so far

	head  []byte // the first bytes
	marks []mark
	total int64 // end of the stream; -1 if not known
	err   error // why the stream ends there; nil for a whole stream
}

// mark is a position where decompression can begin: the start of a member, or the end that the
// input had when it was decompressed completely.
type mark struct{ raw, at int64 }

// New returns the File of a compressed file, closed. Call Attach before any other method.
func New(kind Kind, o Options) *File {
	if o.Decoders == nil {
		o.Decoders = new(Decoders)
	}
	return &File{kind: kind, o: o, total: -1, window: windowMin, marks: []mark{{}}}
}

// Attach opens the File over an input of the given size. If the input still contains the bytes that
// were read earlier, the recorded state stays valid; otherwise it is discarded. Call Attach again
// when the size or the content of the input may have changed.
func (f *File) Attach(in io.ReaderAt, size int64) error {
	f.end()
	ok, err := f.seen.stand(in, size)
	if err != nil {
		return err
	}
	grown := size > f.size
	f.in, f.size = in, size
	_, damaged := errors.AsType[*DamagedError](f.err)
	switch {
	case !ok, damaged: // a decoder may detect damage only after it has returned wrong bytes
		f.forget()
	case grown, f.err != nil:
		f.total, f.err = -1, nil
	}
	return nil
}

// Is reports whether the File is open over in, with size bytes.
func (f *File) Is(in io.ReaderAt, size int64) bool {
	return f.in != nil && f.in == in && f.size == size
}

// forget discards all state.
func (f *File) forget() {
	f.drop(f.hi)
	f.chunks, f.lo, f.hi, f.head, f.total, f.err, f.seen = nil, 0, 0, nil, -1, nil, inputSeen{}
	f.marks = []mark{{}}
}

// Kind returns the compression of the file.
func (f *File) Kind() Kind { return f.kind }

// Window sets the size of the window before the highest offset that was read. The File holds at
// most about n bytes.
func (f *File) Window(n int64) { f.window = max(n, windowMin) }

// Size decompresses up to a given offset (to), or to the end of the stream. It returns the number
// of bytes the stream is known to have. end reports whether these are all bytes of the stream; Err
// then returns the reason for the end.
func (f *File) Size(to int64) (size int64, end bool) {
	for f.total < 0 && f.hi < to && f.in != nil {
		f.more()
		f.trim(f.hi)
	}
	return f.Known()
}

// Known returns the same as Size, without decompressing.
func (f *File) Known() (size int64, end bool) {
	if f.total >= 0 {
		return f.total, true
	}
	return f.hi, false
}

// Err returns the reason why the stream ends at Size: nil if it is whole, a *TruncatedError if the
// file ends in the middle of it, a *DamagedError, an *ExpansionError, or an error of reading the
// input.
func (f *File) Err() error { return f.err }

// Consumed returns an estimate of the bytes read from the input.
func (f *File) Consumed() int64 {
	if f.total >= 0 {
		return f.size
	}
	return f.used
}

// ReadAt reads bytes of the decompressed stream. For offsets before the window, decompression
// restarts at the last mark before them.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if end := off + int64(len(p)); end <= int64(len(f.head)) {
		return copy(p, f.head[off:]), nil
	}
	if off < f.lo {
		f.rewind(off)
	}
	n := 0
	for n < len(p) {
		at := off + int64(n)
		switch {
		case at < f.hi:
			n += f.copy(p[n:], at)
		case f.ended():
			if f.err != nil && !Broken(f.err) {
				return n, f.err
			}
			return n, io.EOF
		default:
			f.trim(at)
			f.more()
		}
	}
	f.trim(off)
	return n, nil
}

// ended reports whether hi is the end of the stream.
func (f *File) ended() bool { return f.total >= 0 && f.hi >= f.total }

// copy copies bytes of the window, starting at at.
func (f *File) copy(p []byte, at int64) (n int) {
	i, lo := int((at-f.lo)/chunkSize), int64(0)
	if i >= len(f.chunks) {
		i = len(f.chunks) - 1
	}
	for lo = f.offsetOf(i); lo > at; lo = f.offsetOf(i) {
		i--
	}
	for ; i < len(f.chunks) && n < len(p); i++ {
		c := f.chunks[i]
		if skip := at + int64(n) - lo; skip < int64(len(c)) {
			n += copy(p[n:], c[skip:])
		}
		lo += int64(len(c))
	}
	return n
}

// offsetOf returns the offset of chunk i.
func (f *File) offsetOf(i int) int64 {
	off := f.lo
	for _, c := range f.chunks[:i] {
		off += int64(len(c))
	}
	return off
}

// trim releases the oldest chunks while more than the window is held, except those with bytes after
// keep.
func (f *File) trim(keep int64) {
	for len(f.chunks) > 1 && f.hi-f.lo > f.window && f.lo+int64(len(f.chunks[0])) <= keep {
		f.drop(f.lo + int64(len(f.chunks[0])))
	}
}

// drop releases the chunks that end at or before to.
func (f *File) drop(to int64) {
	for len(f.chunks) > 0 && f.lo+int64(len(f.chunks[0])) <= to {
		f.lo += int64(len(f.chunks[0]))
		if c := f.chunks[0]; cap(c) == chunkSize {
			f.recycle(c[:0])
		}
		f.chunks = f.chunks[1:]
	}
}

// Close stops the running goroutine and releases the memory, except the state needed to recognise
// the file. Attach opens it again.
func (f *File) Close() {
	f.end()
	f.drop(f.hi)
	f.lend()
	f.chunks, f.head, f.in = nil, nil, nil
	f.lo = f.hi
}

// Rest releases the memory except for the last bytes. Call it when nothing is read for a while.
func (f *File) Rest() {
	f.end()
	f.drop(f.hi - 1)
	if len(f.chunks) == 1 {
		last := f.chunks[0]
		keep := slices.Clone(last[max(0, len(last)-headSize):])
		if cap(last) == chunkSize {
			f.recycle(last[:0])
		}
		f.lo, f.chunks[0] = f.hi-int64(len(keep)), keep
	}
	f.lend()
}
