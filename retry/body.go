package retry

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// hasBody reports whether values of type T have a body that is read after the operation.
func hasBody[T any]() bool {
	switch any((*T)(nil)).(type) {
	case **http.Response, *io.ReadCloser:
		return true
	}
	return false
}

// bodyOf returns a pointer to the body in v, or nil if it has none.
func bodyOf[T any](v *T) *io.ReadCloser {
	switch v := any(v).(type) {
	case **http.Response:
		if *v != nil && (*v).Body != nil {
			return &(*v).Body
		}
	case *io.ReadCloser:
		if *v != nil {
			return v
		}
	}
	return nil
}

// limitBody returns op with a time limit that covers the body of its result. The context of op ends
// after d, or earlier when the body has been closed or read to its end.
func limitBody[T any](
	op func(context.Context) (T, error), d time.Duration,
) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, d, ErrAttemptTimeout)
		v, err := op(ctx)
		body := bodyOf(&v)
		if err != nil || body == nil {
			cancel()
			return v, err
		}
		*body = cancelOnClose(*body, cancel)
		return v, nil
	}
}

// cancelOnClose returns a body that calls cancel when it is closed or a read returns an error,
// including io.EOF.
func cancelOnClose(body io.ReadCloser, cancel context.CancelFunc) io.ReadCloser {
	b := &cancelingBody{ReadCloser: body, cancel: cancel}
	if w, ok := body.(io.Writer); ok { // the connection of a 101 Switching Protocols
		return struct {
			*cancelingBody
			io.Writer
		}{b, w}
	}
	return b
}

type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (b *cancelingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel()
	}
	return n, err
}

// Close implements io.Closer.
func (b *cancelingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// replay lets a request body without GetBody be sent more than once. If the body is an io.Seeker,
// replay rewinds it. Otherwise, it records up to limit bytes of the body while they are read.
//
// A RoundTripper may still read and close the body of one attempt while the next one runs. So each
// attempt has its own replayedBody, and only the replayedBody of the newest attempt gets data.
type replay struct {
	source   io.ReadCloser
	seeker   io.Seeker // nil if the source cannot be rewound
	start    int64     // where the body begins in seeker
	limit    int64
	overflow atomic.Bool // the body is longer than limit
	newest   atomic.Pointer[replayedBody]

	reading  sync.Mutex // held while the source is read
	recorded []byte
	// sole is the replayedBody that reads a source longer than limit. Only sole may continue to
	// read: the beginning of the source is not kept, so no other replayedBody can get it.
	sole *replayedBody

	closing sync.Mutex
	last    bool // no attempt follows: the source is closed with the newest body
	closed  bool
}

// newReplay prepares body. A negative length means that its length is unknown.
func newReplay(body io.ReadCloser, length, limit int64) *replay {
	r := &replay{source: body, limit: limit}
	if s, ok := body.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			r.seeker, r.start = s, at
			return r
		}
	}
	r.overflow.Store(length > limit)
	return r
}

// err returns the reason why the body cannot be sent again, or nil.
func (r *replay) err() error {
	if r.overflow.Load() {
		const text = "%w: its body exceeds %d bytes: set Request.GetBody or Transport.MaxBuffer"
		return fmt.Errorf(text, ErrNotRepeatable, r.limit)
	}
	return nil
}

// next returns the body for the next attempt.
func (r *replay) next() io.ReadCloser {
	b := &replayedBody{replay: r}
	r.newest.Store(b)
	return b
}

// finish is called when no attempt follows. It closes the source. If the body of the last attempt
// is still open, the Close of that body closes the source instead.
func (r *replay) finish() {
	r.closing.Lock()
	defer r.closing.Unlock()
	r.last = true
	if b := r.newest.Load(); b == nil || b.closed {
		_ = r.close()
	}
}

// close closes the source once. The caller holds closing.
func (r *replay) close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return r.source.Close()
}

// replayedBody is the body of one attempt.
type replayedBody struct {
	replay *replay
	off    int  // number of recorded bytes read
	begun  bool // the source has been rewound for this attempt
	closed bool // guarded by replay.closing
}

// Read implements io.Reader.
func (b *replayedBody) Read(p []byte) (int, error) {
	r := b.replay
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.newest.Load() != b {
		return 0, fmt.Errorf("read the body of an earlier attempt: %w", fs.ErrClosed)
	}
	if r.sole != nil && r.sole != b {
		return 0, r.err()
	}
	if r.seeker != nil {
		if !b.begun {
			if _, err := r.seeker.Seek(r.start, io.SeekStart); err != nil {
				return 0, Permanent(fmt.Errorf("rewind the request body: %w", err))
			}
			b.begun = true
		}
		return r.source.Read(p)
	}
	if b.off < len(r.recorded) {
		n := copy(p, r.recorded[b.off:])
		b.off += n
		return n, nil
	}
	n, err := r.source.Read(p)
	switch {
	case r.overflow.Load():
		r.sole = b
	case int64(len(r.recorded)+n) > r.limit:
		r.overflow.Store(true)
		r.recorded, r.sole = nil, b
	default:
		r.recorded = append(r.recorded, p[:n]...)
		b.off += n
	}
	return n, err
}

// Close implements io.Closer.
func (b *replayedBody) Close() error {
	r := b.replay
	r.closing.Lock()
	defer r.closing.Unlock()
	b.closed = true
	if r.last && r.newest.Load() == b {
		return r.close()
	}
	return nil
}
