// Package unpack reads a compressed file as if it were not compressed: at byte offsets of the
// decompressed stream. Sources of files use it. It supports gzip with any number of concatenated
// members, and zstd with any number of frames and skippable frames.
//
// A [File] decompresses forwards and keeps the last decompressed bytes in a window of limited size.
// For an offset before the window, it starts decompressing again at the start of the last member,
// or at the beginning.
//
// A File belongs to one reader of one file. The reader opens and closes the compressed input. It
// may supply a function that starts a goroutine to decompress in advance. If a stream is truncated,
// damaged or a decompression bomb, [File.Err] reports it. The bytes before the fault can still be
// read.
package unpack

import (
	"context"
	"errors"
	"io"
	"slices"
)

// Kind is the compression of a file.
type Kind uint8

// The kinds. String returns the value of the option `compression` for a kind.
const (
	None Kind = iota
	Gzip
	Zstd
)

// String returns "none", "gzip" or "zstd".
func (k Kind) String() string { return [...]string{"none", "gzip", "zstd"}[k] }

// MaxMagic is the number of bytes of a file that Detect examines.
const MaxMagic = 4

// Detect determines the compression of a file from its first bytes. If head is shorter than the
// signature of gzip or zstd, two bytes are enough, because a program may still be writing the file.
// A skippable zstd frame needs four bytes.
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
	// chunkSize is the number of bytes that are decompressed at a time. It is large because passing
	// a chunk to a waiting goroutine costs about as much as decompressing 50 KiB.
	chunkSize = 512 << 10
	// headSize is the number of decompressed bytes kept from the start of the stream.
	headSize = 1024
	// windowMin is the minimum size of the window.
	windowMin = 2 * chunkSize
)

// Options of a File. With the zero value, the File decompresses only on demand, and has no limit
// except that of the zstd window.
type Options struct {
	// MaxExpansion is the maximum number of decompressed bytes per compressed byte. It applies only
	// after 64 MiB of decompressed data. Zero means no limit.
	MaxExpansion int
	// Go starts a goroutine that calls run, which decompresses in advance. run returns when its
	// context or the stream ends, or when the File stops it, such as in Close. Nil means that
	// nothing is decompressed in advance.
	Go func(name string, run func(context.Context) error)
	// Decoders keeps unused decoders for several Files. Nil means that the File creates its own.
	Decoders *Decoders
}

// File is the content of a compressed file. It is not safe for concurrent use.
type File struct {
	kind Kind
	o    Options
	in   io.ReaderAt // compressed input; nil if closed
	size int64       // size of the compressed input
	seen inputSeen   // the input read so far

	s      *stream // the running stream; nil if none runs
	a      *ahead  // the goroutine that uses s; nil if none does
	chunks [][]byte
	lo, hi int64 // the chunks hold the bytes from lo to hi
	window int64 // bytes that chunks may hold
	run    int64 // bytes decompressed since the running stream was started
	used   int64 // offset in the input up to which the last stream has read

	head   []byte // the first bytes of the stream
	resume mark   // the last known one
	total  int64  // end of the stream; -1 if not known
	err    error  // why the stream ends there; nil for a regular end
}

// mark is a position at which decompression can start: the start of a member, or the end of an
// input that was decompressed completely. The field raw is the offset of this position in the
// compressed input. The field at is its offset in the decompressed stream.
type mark struct{ raw, at int64 }

// New returns a closed File. Call Attach before any other method.
func New(kind Kind, o Options) *File {
	if o.Decoders == nil {
		o.Decoders = new(Decoders)
	}
	return &File{kind: kind, o: o, total: -1, window: windowMin}
}

// Attach opens the File with an input of the given size. Call it again whenever the size or the
// content of the input may have changed. If the input still has the first and the last of the bytes
// that were read before, the File keeps its state. Otherwise, and after a DamagedError, it discards
// its state and begins again.
func (f *File) Attach(in io.ReaderAt, size int64) error {
	f.end()
	ok, err := f.seen.matches(in, size)
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

// Is reports whether the File is open with this input and this size.
func (f *File) Is(in io.ReaderAt, size int64) bool {
	return f.in != nil && f.in == in && f.size == size
}

func (f *File) forget() {
	f.drop(f.hi)
	f.chunks, f.lo, f.hi, f.head, f.total, f.err, f.seen = nil, 0, 0, nil, -1, nil, inputSeen{}
	f.resume = mark{}
}

// Kind returns the compression of the file.
func (f *File) Kind() Kind { return f.kind }

// Window sets the size of the window to n bytes, but at least to windowMin (1 MiB).
func (f *File) Window(n int64) { f.window = max(n, windowMin) }

// Size decompresses the bytes before the offset given by to, or all of a shorter stream. It returns
// the number of bytes that the stream is known to have. If end is true, the stream ends there, and
// Err returns the reason.
func (f *File) Size(to int64) (size int64, end bool) {
	for f.total < 0 && f.hi < to && f.in != nil {
		f.more()
		f.trim(f.hi)
	}
	return f.Known()
}

// Known returns the same results as Size, but does not decompress anything.
func (f *File) Known() (size int64, end bool) {
	if f.total >= 0 {
		return f.total, true
	}
	return f.hi, false
}

// Err returns the reason why the stream ends at Size. It is nil for a regular end. Otherwise it is
// a *TruncatedError, a *DamagedError, an *ExpansionError, or an error of reading the input.
func (f *File) Err() error { return f.err }

// Consumed returns an estimate of the bytes read from the input.
func (f *File) Consumed() int64 {
	if f.total >= 0 {
		return f.size
	}
	return f.used
}

// ReadAt reads bytes of the decompressed stream. If off is before the window, decompression starts
// again at the start of the last member if this is at or before off, and otherwise at the
// beginning. The first headSize bytes are kept in addition to the window. At the end of the stream,
// ReadAt returns io.EOF, even if Err returns a fault of the data. If reading the input has failed,
// ReadAt returns this error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if end := off + int64(len(p)); end <= int64(len(f.head)) {
		return copy(p, f.head[off:]), nil
	}
	if off < f.lo { // decompress again: see begin
		f.end()
		f.drop(f.hi)
		f.chunks, f.lo, f.hi = nil, off, off
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

func (f *File) ended() bool { return f.total >= 0 && f.hi >= f.total }

// copy copies bytes of the window to p. They begin at the given offset of the decompressed stream.
func (f *File) copy(p []byte, at int64) (n int) {
	skip := at - f.lo
	for _, c := range f.chunks {
		if skip < int64(len(c)) {
			n += copy(p[n:], c[skip:])
			skip = 0
		} else {
			skip -= int64(len(c))
		}
	}
	return n
}

// trim frees the oldest chunks while the chunks have more bytes than the window. It frees neither
// the last chunk nor a chunk with bytes at or after offset keep.
func (f *File) trim(keep int64) {
	for len(f.chunks) > 1 && f.hi-f.lo > f.window && f.lo+int64(len(f.chunks[0])) <= keep {
		f.drop(f.lo + int64(len(f.chunks[0])))
	}
}

// drop frees the chunks that end at or before an offset.
func (f *File) drop(to int64) {
	for len(f.chunks) > 0 && f.lo+int64(len(f.chunks[0])) <= to {
		f.lo += int64(len(f.chunks[0]))
		f.o.Decoders.keep(f.chunks[0])
		f.chunks = f.chunks[1:]
	}
}

// Close stops the goroutine that decompresses in advance, and frees the memory. It keeps the start of
// the last member and the description of the input, so that a later Attach can continue.
func (f *File) Close() {
	f.end()
	f.drop(f.hi)
	f.chunks, f.head, f.in = nil, nil, nil
	f.lo = f.hi
}

// Rest frees the memory of the window, except the last decompressed bytes. Call it if the file will
// not be read for a while.
func (f *File) Rest() {
	f.end()
	f.drop(f.hi - 1)
	if len(f.chunks) == 1 {
		last := f.chunks[0]
		keep := slices.Clone(last[max(0, len(last)-headSize):])
		f.o.Decoders.keep(last)
		f.lo, f.chunks[0] = f.hi-int64(len(keep)), keep
	}
}
