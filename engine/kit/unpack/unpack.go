// Package unpack reads what a compressed file holds as if it were the file: bytes at offsets of the
// decompressed stream.
//
// A [File] decompresses forwards, keeps a bounded window of what it has decompressed, and begins
// again, at the last member that it knows or at the start, when it is asked for what lies before.
// It knows gzip, with any number of members one behind the other, and zstd, with any number of
// frames and skippable frames. Its owner is one reader of one file, who opens and closes what lies
// beneath, and lends it a way to start a goroutine that decompresses ahead. The package opens
// nothing, waits for nothing but that goroutine, and hides nothing: where a stream ends in the
// middle, is damaged, or is a bomb, [File.Err] says so, and what stands before can be read.
package unpack

import (
	"context"
	"errors"
	"io"
	"slices"
)

// Kind is how a file is compressed.
type Kind uint8

// The kinds. Their texts are those of the key `compression`.
const (
	None Kind = iota
	Gzip
	Zstd
)

// String returns "none", "gzip" or "zstd".
func (k Kind) String() string { return [...]string{"none", "gzip", "zstd"}[k] }

// MaxMagic is how many bytes of a file Detect looks at.
const MaxMagic = 4

// Detect tells by its first bytes how a file is compressed. A beginning of two bytes of a magic
// number counts: nothing but a compressed file that is being written begins so.
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
	case len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18:
		return Zstd // a skippable frame
	}
	return None
}

const (
	// chunkSize is how much is decompressed at once. To hand a chunk to another goroutine that waits
	// for it costs about as much as to decompress 50 KiB.
	chunkSize = 512 << 10
	// headSize is how much of the beginning is kept.
	headSize = 1024
	// windowMin is the least that the window holds.
	windowMin = 2 * chunkSize
	// maxMarks bounds the places at which decompressing can begin.
	maxMarks = 64
)

// Options of a File. The zero value decompresses when it is asked, and knows no limit but that of
// the window of zstd.
type Options struct {
	// MaxExpansion is how many bytes each compressed byte may become, once 64 MiB came out; 0: any
	// number.
	MaxExpansion int
	// Go starts a goroutine that decompresses ahead, by at most aheadChunks chunks; nil: nothing is
	// done ahead. The goroutine ends with its context, with the stream, and with Close.
	Go func(name string, run func(context.Context) error)
	// Decoders lends decoders; nil: each File makes its own.
	Decoders *Decoders
}

// File is what a compressed file holds. It is not safe for concurrent use.
type File struct {
	kind Kind
	o    Options
	in   io.ReaderAt // what lies beneath; nil: closed
	size int64       // of it
	seen seen        // what was read of it

	s      *stream // nil: to be begun at the last mark at or before hi
	a      *ahead  // has s, if not nil
	chunks [][]byte
	lo, hi int64 // the chunks hold the bytes from lo to hi
	free   [][]byte
	window int64 // bytes that chunks may hold
	run    int64 // bytes since the stream was begun
	used   int64 // how much of what lies beneath was read

	head  []byte // the first bytes
	marks []mark
	total int64 // where the stream ends; -1: not known
	err   error // why it ends there; nil: well
}

// mark is a place at which a stream begins: a member's start, or the end of what was there.
type mark struct{ raw, at int64 }

// New returns the File of a compressed file, closed. Call Attach before any other method.
func New(kind Kind, o Options) *File {
	if o.Decoders == nil {
		o.Decoders = new(Decoders)
	}
	return &File{kind: kind, o: o, total: -1, window: windowMin, marks: []mark{{}}}
}

// Attach opens the File over what lies beneath, of which size bytes are there. If those that were
// read before stand in it still, what is known of them holds good; else all is forgotten. It is
// called again when size or content may have changed.
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
	case !ok, damaged: // a decoder may notice damage only after it gave other bytes than were compressed
		f.forget()
	case grown, f.err != nil:
		f.total, f.err = -1, nil
	}
	return nil
}

// Is says whether the File is open over in, with size bytes.
func (f *File) Is(in io.ReaderAt, size int64) bool {
	return f.in != nil && f.in == in && f.size == size
}

// forget makes it a File of which nothing is known.
func (f *File) forget() {
	f.drop(f.hi)
	f.chunks, f.lo, f.hi, f.head, f.total, f.err, f.seen = nil, 0, 0, nil, -1, nil, seen{}
	f.marks = []mark{{}}
}

// Kind is how the file is compressed.
func (f *File) Kind() Kind { return f.kind }

// Window sets how many bytes are kept behind the highest offset that was read, at least: at most
// about so many are held.
func (f *File) Window(n int64) { f.window = max(n, windowMin) }

// Size decompresses until it knows whether the stream has to bytes, and returns how many it has for
// certain; end says that those are all of it, and Err why. It decompresses at least as far as to,
// or to the end.
func (f *File) Size(to int64) (size int64, end bool) {
	for f.total < 0 && f.hi < to && f.in != nil {
		f.more()
		f.trim(f.hi)
	}
	return f.Known()
}

// Known is the size of the stream, as far as it was seen, and whether that is all of it. It does
// nothing.
func (f *File) Known() (size int64, end bool) {
	if f.total >= 0 {
		return f.total, true
	}
	return f.hi, false
}

// Err says why the stream ends where Size says: nil if it is whole, a *TruncatedError if the file
// ends in the middle of it, a *DamagedError, an *ExpansionError, or the error of reading what lies
// beneath.
func (f *File) Err() error { return f.err }

// Consumed is how many bytes of what lies beneath were read; an estimate.
func (f *File) Consumed() int64 {
	if f.total >= 0 {
		return f.size
	}
	return f.used
}

// ReadAt reads bytes of the decompressed stream. Offsets before the window cost decompressing anew
// from the last mark before them.
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

// ended says whether nothing comes behind hi.
func (f *File) ended() bool { return f.total >= 0 && f.hi >= f.total }

// copy copies what the window has from at on.
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

// offsetOf is where a chunk begins.
func (f *File) offsetOf(i int) int64 {
	off := f.lo
	for _, c := range f.chunks[:i] {
		off += int64(len(c))
	}
	return off
}

// trim gives back the oldest chunks while more than the window is held, but none that holds
// anything from keep on.
func (f *File) trim(keep int64) {
	for len(f.chunks) > 1 && f.hi-f.lo > f.window && f.lo+int64(len(f.chunks[0])) <= keep {
		f.drop(f.lo + int64(len(f.chunks[0])))
	}
}

// drop gives back the chunks that end at or before to.
func (f *File) drop(to int64) {
	for len(f.chunks) > 0 && f.lo+int64(len(f.chunks[0])) <= to {
		f.lo += int64(len(f.chunks[0]))
		if c := f.chunks[0]; cap(c) == chunkSize {
			f.spare(c[:0])
		}
		f.chunks = f.chunks[1:]
	}
}

// Close ends what runs and gives back what is held, but for what it needs to know a file again.
// Attach opens it anew.
func (f *File) Close() {
	f.end()
	f.drop(f.hi)
	f.lend()
	f.chunks, f.head, f.in = nil, nil, nil
	f.lo = f.hi
}

// Rest gives back all but the last bytes: nothing more is read for a while.
func (f *File) Rest() {
	f.end()
	f.drop(f.hi - 1)
	if len(f.chunks) == 1 {
		last := f.chunks[0]
		keep := slices.Clone(last[max(0, len(last)-headSize):])
		if cap(last) == chunkSize {
			f.spare(last[:0])
		}
		f.lo, f.chunks[0] = f.hi-int64(len(keep)), keep
	}
	f.lend()
}
