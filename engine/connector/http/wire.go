package http

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	nethttp "net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// lookEvery is how often a request that waits for the network looks whether it is over, or was answered before its end.
	lookEvery = 200 * time.Millisecond
	// glance is how long a request that cannot be written is looked at for an early answer.
	glance = time.Millisecond
	// maxInformal is how many answers 1xx may come before the one that counts.
	maxInformal = 5
)

var (
	errAnswered = errors.New("the receiver answered before it had read the request")
	errLongHead = errors.New("the answer's head is longer than 64 KiB")
	errInformal = errors.New("more than 5 answers 1xx came before the one that counts")
)

// wire is a connection in the clear, on which one request after the other is written and its answer read by the goroutine that asks.
// net/http has two goroutines for a connection and hands each request to both, which costs a sixth of the processor time of a body
// of 256 KiB; what an answer is, it says here too.
type wire struct {
	net.Conn
	raw   syscall.RawConn
	r     *bufio.Reader // of answers, by Read
	head  bytes.Buffer  // of the request in work
	two   [2][]byte     // head and body
	parts net.Buffers   // of two
	used  time.Time     // when the last answer had been read; zero: not yet

	ctx   context.Context // of the request in work
	sent  int64           // bytes of it that were written
	heard bool            // a byte of its answer has come
	room  int64           // bytes that may still come of the answer's head
	brief bool            // Read returns when it is time to look
	alive bool            // what looked has found
	look  func(fd uintptr) bool
}

func newWire(c net.Conn) (*wire, error) {
	w := &wire{Conn: c}
	if s, ok := c.(syscall.Conn); ok {
		raw, err := s.SyscallConn()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		w.raw = raw
	}
	w.r = bufio.NewReaderSize(w, writeBuffer)
	w.look = w.lookAt
	return w, nil
}

// begin makes the head of the next request, whose body has so many bytes.
func (w *wire) begin(ctx context.Context, method, uri, host string, h nethttp.Header, bytes int) error {
	w.ctx, w.sent, w.heard, w.room = ctx, 0, false, maxAnswer
	w.head.Reset()
	for _, s := range [...]string{method, " ", uri, " HTTP/1.1\r\nHost: ", host, "\r\nContent-Length: ", strconv.Itoa(bytes), "\r\n"} {
		w.head.WriteString(s)
	}
	if err := h.Write(&w.head); err != nil {
		return err
	}
	w.head.WriteString("\r\n")
	return w.later()
}

// exchange writes the request that was begun, with body, and lets take read the answer. keep says that another request may follow.
// Nothing reads body when it returns.
func (w *wire) exchange(method string, body []byte, take func(*nethttp.Response)) (keep bool, err error) {
	unsent := w.write(body)
	if cause := context.Cause(w.ctx); unsent != nil && cause != nil {
		return false, cause
	}
	res, err := w.answer(method) // also where it could not be written: the receiver may have said why before it closed
	if err != nil {
		switch {
		case unsent != nil && unsent != errAnswered:
			err = unsent
		case !w.heard && (err == io.EOF || err == io.ErrUnexpectedEOF):
			err = fmt.Errorf("the receiver closed the connection without an answer: %w", err)
		}
		return false, err
	}
	end := &ending{ReadCloser: res.Body}
	res.Body = end
	take(res)
	w.used = time.Now()
	return unsent == nil && end.reached && !res.Close && w.r.Buffered() == 0 && w.SetDeadline(time.Time{}) == nil, nil
}

// write writes head and body, in one call of the kernel where it takes both.
func (w *wire) write(body []byte) error {
	w.two = [2][]byte{w.head.Bytes(), body}
	w.parts = w.two[:]
	defer func() { w.two, w.parts = [2][]byte{}, nil }() // the body is the batch's
	published(w.Conn)
	for {
		n, err := w.parts.WriteTo(w.Conn)
		w.sent += n
		if err == nil {
			return nil
		}
		if err = w.overlook(err); err != nil {
			return err
		}
		if w.answered() {
			return errAnswered
		}
	}
}

// answer reads the head of the answer that counts.
func (w *wire) answer(method string) (*nethttp.Response, error) {
	for range maxInformal + 1 {
		res, err := nethttp.ReadResponse(w.r, &nethttp.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if res.StatusCode/100 != 1 || res.StatusCode == nethttp.StatusSwitchingProtocols {
			w.room = math.MaxInt64 // who takes the answer has bounds of its own
			return res, nil
		}
	}
	return nil, errInformal
}

// Read implements io.Reader for the answers: it waits as long as the request's context lets it.
func (w *wire) Read(p []byte) (int, error) {
	if w.room <= 0 {
		return 0, errLongHead
	}
	for {
		n, err := w.Conn.Read(p[:min(int64(len(p)), w.room)])
		if n > 0 {
			w.heard = true
			w.room -= int64(n)
		}
		if n > 0 || err == nil || w.brief {
			return n, err
		}
		if err = w.overlook(err); err != nil {
			return 0, err
		}
	}
}

// overlook makes nothing of an error that only says that it is time to look, while the request goes on.
func (w *wire) overlook(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return w.later()
}

func (w *wire) later() error { return w.SetDeadline(time.Now().Add(lookEvery)) }

// answered says whether something has come, or nothing will, while the request could not be written.
func (w *wire) answered() bool {
	if w.SetReadDeadline(time.Now().Add(glance)) != nil {
		return true
	}
	w.brief = true
	_, err := w.r.Peek(1)
	w.brief = false
	return !errors.Is(err, os.ErrDeadlineExceeded) || w.later() != nil
}

// fit says whether a kept connection may take another request: it has said nothing since its last answer, not even that it ends.
// Where the system cannot tell it may; the request finds out.
func (w *wire) fit() bool {
	if w.raw == nil {
		return true
	}
	w.alive = true
	return w.raw.Read(w.look) == nil && w.alive
}

// ending is the body of an answer that knows whether it was read to its end.
type ending struct {
	io.ReadCloser
	reached bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	e.reached = e.reached || err == io.EOF
	return n, err
}
