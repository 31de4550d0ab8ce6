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
	// maxStalls is how many looks in a row a request that goes no further waits for a receiver that has already agreed.
	maxStalls = 5
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
	keep = unsent == nil && res.StatusCode >= 200 && end.reached && !res.Close
	return keep && w.r.Buffered() == 0 && w.SetDeadline(time.Time{}) == nil, nil
}

// write writes head and body, in one call of the kernel where it takes both. A receiver that reads no more has mostly said why: an answer
// that refuses is enough, one that agrees may be early, and the rest wanted.
func (w *wire) write(body []byte) error {
	w.two = [2][]byte{w.head.Bytes(), body}
	w.parts = w.two[:]
	defer func() { w.two, w.parts = [2][]byte{}, nil }() // the body is the batch's
	published(w.Conn)
	for stalls := 0; ; {
		n, err := w.parts.WriteTo(w.Conn)
		w.sent += n
		if err == nil {
			return nil
		}
		if err = w.overlook(err); err != nil {
			return err
		}
		if stalls++; n > 0 {
			stalls = 0
		}
		status, over := w.early()
		if over || status >= 300 || status > 0 && stalls >= maxStalls {
			return errAnswered
		}
	}
}

// early says what has come of an answer while the request could not be written: the status of a whole head, those of 1xx left out, or 0;
// over: nothing more will.
func (w *wire) early() (status int, over bool) {
	if w.SetReadDeadline(time.Now().Add(glance)) != nil {
		return 0, true
	}
	w.brief = true
	_, err := w.r.Peek(min(w.r.Buffered()+1, w.r.Size()))
	w.brief = false
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || w.later() != nil {
		return 0, true
	}
	for {
		head, _ := w.r.Peek(w.r.Buffered())
		end := bytes.Index(head, headEnd)
		if end < 0 && len(head) < w.r.Size() {
			return 0, false
		}
		if status = statusOf(head); end < 0 || !informal(status) {
			return status, false
		}
		_, _ = w.r.Discard(end + len(headEnd)) // it is there
	}
}

var headEnd = []byte("\r\n\r\n")

// statusOf reads the status of a head, 999 where there is none.
func statusOf(head []byte) int {
	const before = len("HTTP/1.1 ")
	if len(head) < before+3 {
		return 999
	}
	n, err := strconv.Atoi(string(head[before : before+3]))
	if err != nil {
		return 999
	}
	return n
}

// informal says whether another answer follows.
func informal(status int) bool {
	return status/100 == 1 && status != nethttp.StatusSwitchingProtocols
}

// answer reads the head of the answer that counts.
func (w *wire) answer(method string) (*nethttp.Response, error) {
	for range maxInformal + 1 {
		res, err := nethttp.ReadResponse(w.r, &nethttp.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if !informal(res.StatusCode) {
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

// fit says whether a kept connection may take another request: it has said nothing since its last answer, not even that it ends.
func (w *wire) fit() bool {
	w.alive = true
	return w.raw == nil || w.raw.Read(w.look) == nil && w.alive
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
