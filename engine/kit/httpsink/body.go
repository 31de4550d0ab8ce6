package httpsink

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

var (
	errReleased = errors.New("the request is over")
	errStalled  = errors.New("the receiver stopped reading after its response")
)

// body is the body of one request. If the receiver responds before it has read the body, net/http
// may continue reading the body on another goroutine after RoundTrip has returned. After release,
// no goroutine reads the data, and its memory can be used again.
//
// A request has no GetBody. Therefore net/http cannot send the body a second time by itself, and
// each call of Deliver sends at most one request.
type body struct {
	wake chan struct{} // has a value after Close and after a direct write has returned
	sent chan error    // the result of writing the request; buffer of 1

	mu       sync.Mutex // guards the fields below; held while bytes are copied
	data     []byte
	off      int      // bytes already read or written directly
	writer   net.Conn // the connection of a running direct write of data; nil if none runs
	closed   bool
	released bool
}

func newBody(data []byte) *body {
	return &body{data: data, wake: make(chan struct{}, 1), sent: make(chan error, 1)}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released || b.closed {
		return 0, errReleased
	}
	if b.off == len(b.data) {
		return 0, io.EOF
	}
	n := copy(p, b.data[b.off:])
	b.off += n
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.notify()
	return nil
}

func (b *body) notify() {
	select {
	case b.wake <- struct{}{}:
	default: // a value is waiting already
	}
}

// recordSent records the result of writing the request. net/http calls it once for each connection
// that it tries. Only the first result is kept.
func (b *body) recordSent(err error) {
	select {
	case b.sent <- err:
	default:
	}
}

// awaitSent waits until the whole request has been written. It returns an error in three cases: a
// write fails, ctx ends, or the body makes no progress for stallPatience (2 s). A write directly
// from the memory of the body (see beginWrite) counts as progress only when it ends.
func (b *body) awaitSent(ctx context.Context) error {
	select {
	case err := <-b.sent: // the usual case
		return err
	default:
	}
	timer := time.NewTimer(stallPatience)
	defer timer.Stop()
	for before := b.progress(); ; {
		select {
		case err := <-b.sent:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		now := b.progress()
		if now == before {
			return errStalled
		}
		before = now
		timer.Reset(stallPatience)
	}
}

func (b *body) progress() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.off
}

// release ends the use of the body's data, so that the caller can use its memory again. First it
// waits up to bodyPatience (100 ms) until net/http has closed the body, because only then can the
// connection serve another request. If net/http has still not closed it, release aborts the request
// with cancel. If a goroutine is writing directly from this memory (see beginWrite), release also
// closes the connection.
func (b *body) release(cancel context.CancelFunc) {
	if b.releaseIfClosed() {
		return // the usual case: a receiver that responds has read everything
	}
	timer := time.NewTimer(bodyPatience)
	defer timer.Stop()
	for !b.releaseIfClosed() {
		select {
		case <-b.wake:
		case <-timer.C:
			cancel()
			b.breakOff()
			return
		}
	}
}

func (b *body) releaseIfClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed || b.writer != nil {
		return false
	}
	b.released, b.data = true, nil
	return true
}

// breakOff makes further reads of the body fail. If a goroutine is writing directly from the memory
// of the body to a connection (see beginWrite), breakOff closes the connection and waits for the
// end of the write.
func (b *body) breakOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released, b.data = true, nil
	for b.writer != nil {
		c := b.writer
		b.mu.Unlock()
		_ = c.Close() // the write reports the error
		<-b.wake
		b.mu.Lock()
	}
}

// beginWrite begins a direct write of the body's data to c, without a copy. It returns the
// remaining bytes of the data. If there are more bytes than the limit most, it returns only the
// first ones. The caller must call endWrite after the write.
func (b *body) beginWrite(c net.Conn, most int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released || b.closed {
		return nil, errReleased
	}
	b.writer = c
	rest := b.data[b.off:]
	return rest[:min(int64(len(rest)), most)], nil
}

// endWrite ends a direct write of n bytes.
func (b *body) endWrite(n int) {
	b.mu.Lock()
	b.off += n
	b.writer = nil
	b.mu.Unlock()
	b.notify()
}
