package httpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-io/penstock/engine/kit/intake"
)

// statusError is an error for which the response has a certain status.
type statusError struct {
	status int
	err    error
}

// Error implements error.
func (e *statusError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *statusError) Unwrap() error { return e.err }

func failure(status int, format string, args ...any) error {
	return &statusError{status, fmt.Errorf(format, args...)}
}

const (
	// firstRead is the number of bytes that are reserved at first if the length of the decompressed
	// body is unknown.
	firstRead = 64 << 10
	// freeRatio is the number of decompressed bytes above which max_ratio is checked.
	freeRatio = 1 << 20
	// leastRate is the minimum rate of a body in bytes per second. graceRead is additional time for
	// the whole body.
	leastRate = 1 << 10
	graceRead = 10 * time.Second
	// The bounds of the window of a zstd decoder. The window counts against the memory limit of the
	// source.
	leastWindow = 1 << 20
	maxWindow   = 8 << 20
)

// bodyReader reads a request's body within the limits of size, ratio and time.
type bodyReader struct {
	o        *Options
	r        *nethttp.Request
	conn     *nethttp.ResponseController
	room     *intake.Reservation
	begun    time.Time
	until    time.Time // deadline of the request
	received int64     // bytes received over the connection
}

// Read implements io.Reader. It reads the body as the client has sent it. It fails at the deadline
// of the request, or earlier if the client is slow: graceRead after the start of the body, plus one
// second for each leastRate bytes that have been received.
func (b *bodyReader) Read(p []byte) (int, error) {
	end := b.begun.Add(graceRead + time.Duration(b.received/leastRate)*time.Second)
	if end.After(b.until) {
		end = b.until
	}
	_ = b.conn.SetReadDeadline(end) // both protocols support it
	n, err := b.r.Body.Read(p)
	b.received += int64(n)
	if err == io.ErrUnexpectedEOF {
		err = errCut
	}
	return n, err
}

// errCut means that the connection has ended within the body. In this case, net/http returns
// io.ErrUnexpectedEOF. A zstd decoder would treat that error as the end of the body if it comes
// between two frames.
var errCut = errors.New("the connection ended")

// initial returns the number of bytes to reserve before the body is read.
func (b *bodyReader) initial() int64 {
	if n := b.r.ContentLength; n > 0 && (b.encoding() == "" || b.isSnappy()) {
		return min(n+1, int64(b.o.MaxBody)+1) // one more for a line end
	}
	return firstRead
}

// read returns the decompressed body. It reserves memory before it reads more bytes.
func (b *bodyReader) read(ctx context.Context) ([]byte, error) {
	if b.isSnappy() {
		block, err := b.readAll(ctx, b)
		if err != nil {
			return nil, err
		}
		return b.unsnappy(ctx, block)
	}
	plain, done, err := b.decompress(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return b.readAll(ctx, plain)
}

// readAll reads r, which is the body or its decompressed content.
func (b *bodyReader) readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	most, reserved := int64(b.o.MaxBody), b.initial()
	data := intake.Buffer(reserved)
	for {
		if len(data) == cap(data) {
			grown := min(2*reserved, most+2)
			if err := b.grow(ctx, grown-reserved); err != nil {
				return nil, err
			}
			reserved = grown
			data = append(make([]byte, 0, grown), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > most:
			return nil, failure(413, "the body has more than %v (max_body); send it in parts", b.o.MaxBody)
		case len(data) > freeRatio && int64(len(data)) > b.received*int64(b.o.MaxRatio):
			return nil, failure(413, "more than %d bytes come out of each compressed byte "+
				"(max_ratio); send it in parts", b.o.MaxRatio)
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, b.failed(err)
		}
	}
}

// grow reserves more bytes. It may have to wait for memory. This wait does not count as time in
// which the client must send the body.
func (b *bodyReader) grow(ctx context.Context, bytes int64) error {
	before := time.Now()
	err := b.room.Grow(ctx, bytes)
	b.begun = b.begun.Add(time.Since(before))
	return err
}

// isSnappy reports whether the body is a single snappy block. Clients of Loki send protobuf in this
// form.
func (b *bodyReader) isSnappy() bool {
	encoding := b.encoding()
	return encoding == "snappy" ||
		encoding == "" && b.o.Format == Loki && !strings.HasPrefix(b.r.Header.Get("Content-Type"), typeJSON)
}

// unsnappy decompresses a snappy block. The block begins with the size of its content.
func (b *bodyReader) unsnappy(ctx context.Context, block []byte) ([]byte, error) {
	if len(block) == 0 {
		return nil, nil
	}
	size, err := snappy.DecodedLen(block)
	switch {
	case err != nil:
		return nil, failure(400, "the body cannot be decompressed as snappy: %w", err)
	case int64(size) > int64(b.o.MaxBody):
		return nil, failure(413, "the body has more than %v (max_body); send it in parts", b.o.MaxBody)
	case size > freeRatio && size > len(block)*b.o.MaxRatio:
		return nil, failure(413, "more than %d bytes come out of each compressed byte "+
			"(max_ratio); send it in parts", b.o.MaxRatio)
	}
	if err := b.grow(ctx, int64(size)); err != nil {
		return nil, err
	}
	plain, err := snappy.Decode(nil, block)
	if err != nil {
		return nil, failure(400, "the body cannot be decompressed as snappy: %w", err)
	}
	return plain, nil
}

// failed returns the error of the request, given an error of reading its body. The returned error
// determines the status of the response: 408 if the client was too slow, otherwise 400.
func (b *bodyReader) failed(err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return failure(408, "the body came too slowly: %d bytes in %v", b.received,
			time.Since(b.begun).Round(time.Second))
	case b.r.Context().Err() != nil, errors.Is(err, errCut):
		return failure(400, "the body ended early, after %d bytes: %w", b.received, err)
	}
	return failure(400, "the body cannot be decompressed as %s: %w, after %d bytes of it",
		b.encoding(), err, b.received)
}

func (b *bodyReader) encoding() string {
	encoding := strings.ToLower(strings.TrimSpace(b.r.Header.Get("Content-Encoding")))
	if encoding == "identity" {
		return ""
	}
	return encoding
}

// decompress returns a reader of the decompressed body. done must be called afterwards to free the
// decompressor.
func (b *bodyReader) decompress(ctx context.Context) (plain io.Reader, done func(), err error) {
	nothing := func() {}
	switch encoding := b.encoding(); encoding {
	case "":
		return b, nothing, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, b.failed(err)
		}
		return z, func() { _ = z.Close() }, nil
	case "zstd":
		in := bufio.NewReader(b)
		if err := b.reserveWindow(ctx, in); err != nil {
			return nil, nil, err
		}
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderMaxMemory(uint64(b.o.MaxBody)+maxWindow))
		if err != nil {
			return nil, nil, b.failed(err)
		}
		return z, z.Close, nil
	default:
		return nil, nil, failure(415, "Content-Encoding %.40q is not supported; send gzip, zstd, "+
			"snappy or none", encoding)
	}
}

// reserveWindow reserves memory for the window of a zstd decoder, which the decoder allocates at
// the first block. It reads the size of the window from the header of the first frame. If a later
// frame has a larger window, the additional bytes are not reserved.
func (b *bodyReader) reserveWindow(ctx context.Context, in *bufio.Reader) error {
	head, err := in.Peek(zstd.HeaderMaxSize)
	if err != nil && err != io.EOF {
		return b.failed(err)
	}
	var h zstd.Header
	_ = h.Decode(head) // the decoder reports the error
	window := h.WindowSize
	switch {
	case h.Skippable:
		window = maxWindow // only the header of the next frame has the size
	case h.SingleSegment:
		window = h.FrameContentSize
	}
	return b.grow(ctx, int64(min(max(window, leastWindow), maxWindow)))
}
