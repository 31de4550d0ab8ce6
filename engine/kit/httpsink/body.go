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

// body is the body of one request. net/http may continue reading it after RoundTrip has returned,
// on a goroutine of its own, if the receiver responded early. After release nothing reads the data,
// so that it may be reused.
//
// A request has no GetBody, so that net/http never sends it a second time by itself: each call of
// Deliver sends at most one request.
type body struct {
	wake chan struct{} // holds a value after Close and after a direct write has returned
	sent chan error    // the result of writing the request; holds one value

	mu       sync.Mutex // guards the fields below; held while bytes are copied
	data     []byte
	off      int      // bytes that were read or written directly
	writer   net.Conn // writes directly from data; nil if none does
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
// that it tries; the first result counts.
func (b *body) recordSent(err error) {
	select {
	case b.sent <- err:
	default:
	}
}

// awaitSent waits until the whole request has been written. It returns an error if a write fails,
// ctx ends, or there is no progress for stallPatience.
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

// release waits up to bodyPatience until net/http has closed the body, so that the connection can
// be kept. Then it aborts the request with cancel, and closes the connection if a direct write is
// still running.
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

// breakOff refuses further reads and waits for the direct write, if one is running.
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

// beginWrite returns the remaining bytes for a direct write to c, up to a limit (most). endWrite
// must follow.
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
