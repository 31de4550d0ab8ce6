package unpack

import (
	"context"
	"io"
)

const (
	// aheadChunks is the maximum number of decompressed chunks that wait in the channel pieces.
	aheadChunks = 2
	// aheadFrom is the number of decompressed bytes after which a goroutine decompresses the next
	// chunks in advance. For smaller files a goroutine costs more than it saves.
	aheadFrom = chunkSize
	// aheadLeft is the number of unread bytes of the compressed input below which no goroutine is
	// started to decompress in advance.
	aheadLeft = 256 << 10
)

// piece is a decompressed chunk of a stream. The last piece also has the reason why the stream
// ends: io.EOF or an error.
type piece struct {
	data   []byte
	err    error
	member mark
	used   int64
}

// ahead is a stream that a goroutine decompresses in advance. From the start of run until ended is
// closed, only this goroutine may use the stream.
type ahead struct {
	s      *stream
	chunks *Decoders
	pieces chan piece
	stop   chan struct{}
	ended  chan struct{}
}

func startAhead(s *stream, o Options) *ahead {
	a := &ahead{
		s: s, chunks: o.Decoders, pieces: make(chan piece, aheadChunks),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	o.Go("unpack", a.run)
	return a
}

func (a *ahead) run(ctx context.Context) error {
	defer close(a.ended)
	for {
		buf := a.chunks.chunk()
		n, err := a.s.read(buf[:chunkSize])
		select {
		case a.pieces <- piece{buf[:n], err, a.s.member, a.s.src.off}:
		case <-a.stop:
			return nil
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return nil
		}
	}
}

// take waits for the next piece. ok is false if the goroutine has ended and no piece is left.
func (a *ahead) take() (p piece, ok bool) {
	select {
	case p = <-a.pieces:
		return p, true
	case <-a.ended:
	}
	select {
	case p = <-a.pieces:
		return p, true
	default:
		return p, false
	}
}

// begin starts to decompress at the start of the last member, or at the beginning if this start is
// after f.hi, the offset of the next byte to decompress. It discards the bytes before f.hi.
func (f *File) begin() error {
	m := f.resume
	if m.at > f.hi {
		m = mark{}
	}
	s := &stream{kind: f.kind, from: m.raw, at: m.at, most: int64(f.o.MaxExpansion), member: m}
	s.src = input{in: f.in, off: m.raw, size: f.size, seen: &f.seen}
	f.s, f.run = s, 0
	if err := f.o.Decoders.begin(s); err != nil {
		return s.typedError(err)
	}
	for s.at < f.hi { // discard bytes that are already in the window, or are not needed
		scratch := f.o.Decoders.chunk()
		n, err := s.read(scratch[:min(chunkSize, f.hi-s.at)])
		f.o.Decoders.keep(scratch)
		if err != nil && (err != io.EOF || s.at < f.hi) {
			if n > 0 && s.at >= f.hi {
				return nil
			}
			return err
		}
	}
	return nil
}

// more decompresses one more chunk, or finds the end of the stream.
func (f *File) more() {
	if f.in == nil {
		f.finish(io.ErrClosedPipe)
		return
	}
	if f.s == nil && f.a == nil {
		if err := f.begin(); err != nil {
			f.finish(err)
			return
		}
	}
	if f.a == nil && f.o.Go != nil && f.run >= aheadFrom && f.s.src.size-f.s.src.off >= aheadLeft {
		f.a = startAhead(f.s, f.o)
	}
	if f.a != nil {
		if p, ok := f.a.take(); ok {
			f.add(p)
			return
		}
		f.end() // the goroutine's context has ended, and its data is lost
		f.o.Go = nil
		f.more()
		return
	}
	buf := f.o.Decoders.chunk()
	n, err := f.s.read(buf[:chunkSize])
	f.add(piece{buf[:n], err, f.s.member, f.s.src.off})
}

// add appends a chunk to the window.
func (f *File) add(p piece) {
	n := int64(len(p.data))
	if n > 0 {
		if f.hi == int64(len(f.head)) && len(f.head) < headSize {
			f.head = append(f.head, p.data[:min(n, int64(headSize-len(f.head)))]...)
		}
		f.chunks = append(f.chunks, p.data)
		f.hi += n
		f.run += n
	}
	f.used, f.resume = p.used, p.member
	if p.err != nil {
		f.finish(p.err)
	}
}

func (f *File) finish(err error) {
	if err == io.EOF {
		err = nil
		f.resume = mark{f.size, f.hi}
	}
	f.total, f.err = f.hi, err
	f.end()
}

// end ends the running stream and returns its decoder to Decoders. If a goroutine decompresses in
// advance, end waits until it has finished its current chunk.
func (f *File) end() {
	if f.a != nil {
		close(f.a.stop)
		<-f.a.ended
		f.a = nil
	}
	if f.s != nil {
		f.o.Decoders.end(f.s)
		f.s = nil
	}
}
