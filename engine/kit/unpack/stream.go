package unpack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// inputSize is the size of the buffer for compressed input in gzip.
	inputSize = 256 << 10
	// evidence is the number of bytes that inputSeen keeps of the first and of the last bytes read.
	evidence = 64
	// maxZstdWindow bounds the memory of a zstd stream. It is the default limit of the zstd
	// program.
	maxZstdWindow = 128 << 20
	// expansionFrom is the number of decompressed bytes after which MaxExpansion applies.
	expansionFrom = 64 << 20
)

// inputSeen describes the compressed input that was read so far, so that [File.Attach] can
// recognise the same input later.
type inputSeen struct {
	off        int64  // number of bytes read
	head, tail []byte // the first bytes, and the last ones before off
}

func (s *inputSeen) add(p []byte) {
	s.off += int64(len(p))
	if n := min(len(p), evidence-len(s.head)); n > 0 {
		s.head = append(s.head, p[:n]...)
	}
	s.tail = append(s.tail, p[max(0, len(p)-evidence):]...)
	s.tail = slices.Delete(s.tail, 0, max(0, len(s.tail)-evidence))
}

// matches reports whether the input still has the bytes described by s.
func (s *inputSeen) matches(in io.ReaderAt, size int64) (bool, error) {
	if size < s.off {
		return false, nil
	}
	for _, e := range []struct {
		want []byte
		off  int64
	}{{s.head, 0}, {s.tail, s.off - int64(len(s.tail))}} {
		got := make([]byte, len(e.want))
		if n, err := in.ReadAt(got, e.off); n < len(got) {
			if err == io.EOF || err == nil {
				return false, nil // the file has just become shorter
			}
			return false, err
		}
		if !bytes.Equal(got, e.want) {
			return false, nil
		}
	}
	return true, nil
}

// input reads the compressed input from offset off up to its size.
type input struct {
	in   io.ReaderAt
	off  int64
	size int64
	seen *inputSeen // the part of the input read so far by any stream
	err  error      // error of reading the input, except io.EOF
}

// Read implements io.Reader.
func (i *input) Read(p []byte) (int, error) {
	if i.off >= i.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), i.size-i.off)]
	n, err := i.in.ReadAt(p, i.off)
	if known := i.seen.off - i.off; known < int64(n) && known >= 0 {
		i.seen.add(p[known:n])
	}
	i.off += int64(n)
	if n > 0 || err == io.EOF {
		return n, err
	}
	i.err = err
	return n, err
}

// stream decompresses from a mark on. Only one goroutine at a time may use it.
type stream struct {
	kind Kind
	from int64 // offset in the compressed input where the stream began
	most int64 // MaxExpansion
	src  input
	gz   *gzipDecoder
	zs   *zstd.Decoder
	open bool  // gzip: inside a member
	out  int64 // bytes decompressed by this stream
	at   int64 // position in the decompressed stream

	member mark // gzip: start of the current member, or end of the last one
}

// read fills p. If the stream ends before p is full, read returns the bytes before the end together
// with an error: io.EOF at a regular end, otherwise one of the errors documented at [File.Err].
func (s *stream) read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var got int
		if s.kind == Gzip {
			got, err = s.readGzip(p[n:])
		} else {
			got, err = s.zs.Read(p[n:])
		}
		n += got
		s.out += int64(got)
		s.at += int64(got)
		if used := s.src.off - s.from; err == nil && s.most > 0 && s.out > expansionFrom &&
			s.out/s.most > used {
			err = &ExpansionError{Compressed: used, Bytes: s.out, Max: int(s.most)}
		}
	}
	if err != nil && err != io.EOF {
		err = s.typedError(err)
	}
	return n, err
}

// typedError converts an error of a decoder to one of the errors documented at [File.Err].
func (s *stream) typedError(err error) error {
	if s.src.err != nil {
		return s.src.err
	}
	if Broken(err) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return &TruncatedError{Kind: s.kind, Bytes: s.at, Compressed: s.src.size}
	}
	return &DamagedError{Kind: s.kind, Bytes: s.at, Near: s.consumed(), Err: err}
}

// consumed returns the offset in the compressed input up to which the decoder has read. For gzip,
// the bytes in its buffer do not count as read.
func (s *stream) consumed() int64 {
	if s.gz != nil {
		return s.src.off - int64(s.gz.in.Buffered())
	}
	return s.src.off
}

// readGzip reads consecutive members.
func (s *stream) readGzip(p []byte) (int, error) {
	for {
		if !s.open {
			s.member = mark{s.consumed(), s.at}
			if err := s.beginMember(); err != nil {
				return 0, err
			}
			s.open = true
		}
		n, err := s.gz.Read(p)
		if err == io.EOF {
			s.open = false
			err = nil
		} else if err != nil {
			return n, err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// errGarbage means that a gzip member is followed by bytes that are neither padding (zeros up to
// the end of the file) nor the header of another member.
var errGarbage = errors.New("the following bytes are not gzip")

// beginMember reads the header of the next gzip member. It returns io.EOF if there is none. Zeros
// up to the end of the file count as padding, as written by tape drives.
func (s *stream) beginMember() error {
	next, err := s.gz.in.Peek(1)
	if err != nil {
		return err
	}
	if next[0] == 0 && s.at > 0 {
		for err == nil {
			if next[0] != 0 {
				return errGarbage
			}
			_, _ = s.gz.in.Discard(1)
			next, err = s.gz.in.Peek(1)
		}
		return err
	}
	if next, _ = s.gz.in.Peek(MaxMagic); s.member.raw > 0 && len(next) > 1 && Detect(next) != Gzip {
		return errGarbage
	}
	switch err := s.gz.Reset(s.gz.in); {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	s.gz.Multistream(false)
	return nil
}

// Decoders keeps unused decoders and chunks for the next stream, because new ones take memory and
// time. The zero value is ready to use. Decoders are safe for concurrent use.
type Decoders struct {
	gzip, zstd, chunks sync.Pool
}

// gzipDecoder is a decoder with a buffer for its compressed input.
type gzipDecoder struct {
	*gzip.Reader
	in *bufio.Reader
}

func (d *Decoders) chunk() []byte {
	if chunk, ok := d.chunks.Get().(*[chunkSize]byte); ok {
		return chunk[:0]
	}
	return make([]byte, 0, chunkSize)
}

// keep stores a chunk for later use if it has the usual size. Its content is lost.
func (d *Decoders) keep(chunk []byte) {
	if cap(chunk) == chunkSize {
		d.chunks.Put((*[chunkSize]byte)(chunk[:chunkSize]))
	}
}

// begin gives s a decoder.
func (d *Decoders) begin(s *stream) error {
	if s.kind == Gzip {
		z, ok := d.gzip.Get().(*gzipDecoder)
		if !ok {
			z = &gzipDecoder{new(gzip.Reader), bufio.NewReaderSize(nil, inputSize)}
		}
		z.in.Reset(&s.src)
		s.gz = z
		return nil
	}
	if z, ok := d.zstd.Get().(*zstd.Decoder); ok {
		s.zs = z
		return z.Reset(&s.src)
	}
	z, err := zstd.NewReader(&s.src,
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(false),
		zstd.WithDecoderMaxWindow(maxZstdWindow))
	s.zs = z
	return err
}

// end stores a stream's decoder for later use.
func (d *Decoders) end(s *stream) {
	if s.gz != nil {
		s.gz.in.Reset(nil)
		d.gzip.Put(s.gz)
	}
	if s.zs != nil && s.zs.Reset(nil) == nil {
		d.zstd.Put(s.zs)
	}
	s.gz, s.zs = nil, nil
}

// A TruncatedError means that the file ends in the middle of a compressed stream. Either the file
// is still being written, or it was cut off.
type TruncatedError struct {
	Kind       Kind
	Bytes      int64 // number of decompressed bytes before the end
	Compressed int64 // size of the file
}

// Error names the position and the format.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("the %s data end in the middle, after %d bytes (%d decompressed); "+
		"the file is still being written, or was cut off",
		e.Kind, e.Compressed, e.Bytes)
}

// A DamagedError means that compressed data is invalid.
type DamagedError struct {
	Kind  Kind
	Bytes int64 // decompressed before the damage
	Near  int64 // approximate offset in the file
	Err   error
}

// Error names the position and the decoder's reason.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the %s data are damaged near byte %d of the file, %d bytes came out "+
		"before (%v); put a sound copy in its place",
		e.Kind, e.Near, e.Bytes, e.Err)
}

// Unwrap returns the decoder's reason.
func (e *DamagedError) Unwrap() error { return e.Err }

// An ExpansionError means that the stream has expanded by more than MaxExpansion allows.
type ExpansionError struct {
	Compressed, Bytes int64
	Max               int
}

// Error names the option.
func (e *ExpansionError) Error() string {
	return fmt.Sprintf("%d compressed bytes became more than %d, which is more than "+
		"max_expansion (%d) allows; "+
		"if the file is what it should be, raise max_expansion", e.Compressed, e.Bytes, e.Max)
}

// Broken reports whether an error returned by Err is a fault of the compressed data. It is false
// for an error of reading the input.
func Broken(err error) bool {
	switch err.(type) {
	case *TruncatedError, *DamagedError, *ExpansionError:
		return true
	}
	return false
}
