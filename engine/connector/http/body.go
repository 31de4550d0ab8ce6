package http

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

var (
	errBodyOver = errors.New("the request is over")
	errOverdue  = errors.New("the connection broke when the answer was overdue and the batch had gone elsewhere")
)

// bodies are the readers of one request's body. net/http goes on reading after an early answer, on a goroutine of its
// own, and opens a second reader when it sends again on a fresh connection what a stale one has lost. end is the point
// after which none of them touches the data.
//
// net/http sends again by itself also what a receiver has kept for long before it broke the connection. When the answer is
// overdue the batch has gone to another worker, and sending it again here would repeat it: no reader is opened then.
type bodies struct {
	idle   chan struct{} // takes one: the last reader was closed, or a write has returned
	expect time.Time     // when the answer is overdue; zero: never

	mu      sync.Mutex // guards what follows; held while bytes are copied, which is what end waits for
	data    []byte
	reading int        // readers that were opened and not closed
	lent    []net.Conn // that are writing straight from data, which end waits for, too
	over    bool
}

func newBodies(data []byte, expect time.Time) *bodies {
	return &bodies{data: data, expect: expect, idle: make(chan struct{}, 1)}
}

// open returns a reader of the whole body.
func (s *bodies) open() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, errBodyOver
	}
	s.reading++
	return &body{of: s}, nil
}

// again is the request's GetBody.
func (s *bodies) again() (io.ReadCloser, error) {
	if !s.expect.IsZero() && time.Now().After(s.expect) {
		return nil, errOverdue
	}
	return s.open()
}

// end waits until every reader is closed, so that the connection may be kept; not for longer than bodyPatience, after which
// cancel breaks the connection, and a write that still runs is ended by closing it. After it nothing touches the data.
func (s *bodies) end(cancel context.CancelFunc) {
	if s.ended() {
		return // as nearly always: who answers has read all of it
	}
	timer := time.NewTimer(bodyPatience)
	defer timer.Stop()
	for !s.ended() {
		select {
		case <-s.idle:
		case <-timer.C:
			cancel()
			s.breakOff()
			return
		}
	}
}

// ended ends it if no reader is open.
func (s *bodies) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == 0 {
		s.over, s.data = true, nil
	}
	return s.reading == 0
}

// breakOff lets no reader go on and waits until the writes have returned.
func (s *bodies) breakOff() {
	s.mu.Lock()
	s.over, s.data = true, nil
	for len(s.lent) > 0 {
		writing := slices.Clone(s.lent)
		s.mu.Unlock()
		for _, c := range writing {
			_ = c.Close() // the write tells
		}
		<-s.idle
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// lend is what of a body is left to be written to c, at most so many bytes; the caller gives it back.
func (s *bodies) lend(b *body, c net.Conn, most int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || b.closed {
		return nil, errBodyOver
	}
	data := s.data[b.off:]
	data = data[:min(int64(len(data)), most)]
	s.lent = append(s.lent, c)
	return data, nil
}

// giveBack ends lend: n bytes were written.
func (s *bodies) giveBack(b *body, c net.Conn, n int) {
	s.mu.Lock()
	b.off += n
	i := slices.Index(s.lent, c)
	s.lent = slices.Delete(s.lent, i, i+1)
	s.mu.Unlock()
	s.wake()
}

func (s *bodies) wake() {
	select {
	case s.idle <- struct{}{}:
	default: // it will look anyway
	}
}

// body is one reader.
type body struct {
	of     *bodies
	off    int
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if b.of.over || b.closed {
		return 0, errBodyOver
	}
	if b.off == len(b.of.data) {
		return 0, io.EOF
	}
	n := copy(p, b.of.data[b.off:])
	b.off += n
	return n, nil
}

func (b *body) Close() error {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.of.reading--; b.of.reading == 0 {
		b.of.wake()
	}
	return nil
}
