//go:build linux

package faults

import (
	"bufio"
	"compress/gzip"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// ending is the way in which a receiver ends a connection after a request.
type ending int

const (
	keepOpen ending = iota
	closeConn
	resetConn
	hang // read nothing more, and keep the connection
)

// reply is the behavior of a receiver for one request.
type reply struct {
	name    string
	early   string // sent before the body is read
	part    int64  // bytes of the body to read; 0: all, -1: none
	discard bool   // the records are not stored, although they were read
	wait    time.Duration
	answer  string        // sent unchanged
	drip    time.Duration // between the bytes of the answer
	repeat  int           // how often the answer is sent again
	end     ending
	atOnce  bool // the fault strikes when the connection is accepted, before a request is read
}

var accepts = reply{name: "accepts", answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}

// receiver is an HTTP server on raw connections, so that it can violate the protocol. It keeps the
// bodies that it has stored.
type receiver struct {
	listener net.Listener
	secure   *tls.Config // nil for plain HTTP
	rcvbuf   int         // of each connection; 0: the system's

	mu       sync.Mutex
	fault    reply
	when     schedule
	well     chan struct{} // closed by heal
	seen     int           // requests, or connections if the fault occurs at accept
	requests int           // heads that were read
	bodies   []string      // those that were stored
	conns    map[net.Conn]struct{}
	wg       sync.WaitGroup
}

// receive starts a receiver on loopback; the rig stops it at the end of the case.
func (r *rig) receive(fault reply, when schedule, secure bool) *receiver {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.check(err)
	s := &receiver{listener: l, fault: fault, when: when, conns: map[net.Conn]struct{}{},
		well: make(chan struct{})}
	if secure {
		s.secure = r.certificate()
	}
	s.wg.Go(s.accept)
	r.cleanup(s.close)
	return s
}

// certificate makes TLS settings for loopback and writes their authority to ca.pem.
func (r *rig) certificate() *tls.Config {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	r.write("ca.pem", string(pem.EncodeToMemory(block)))
	return &tls.Config{Certificates: server.TLS.Certificates}
}

func (s *receiver) url() string {
	scheme := "http"
	if s.secure != nil {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String() + "/in"
}

// heal makes the receiver accept everything from now on, and drops its connections.
func (s *receiver) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isWell() {
		close(s.well)
	}
	for c := range s.conns {
		c.Close()
	}
}

func (s *receiver) isWell() bool {
	select {
	case <-s.well:
		return true
	default:
		return false
	}
}

func (s *receiver) close() {
	s.listener.Close()
	s.heal()
	s.wg.Wait()
}

func (s *receiver) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		if tcp, ok := conn.(*net.TCPConn); ok && s.rcvbuf > 0 {
			_ = tcp.SetReadBuffer(s.rcvbuf)
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(conn)
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

// next returns the behavior for the next request.
func (s *receiver) next() reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.seen
	s.seen++
	if s.isWell() || !s.when.faulty(n) {
		return accepts
	}
	return s.fault
}

func (s *receiver) serve(raw net.Conn) {
	defer raw.Close()
	conn := raw
	s.mu.Lock()
	atOnce := s.fault.atOnce
	s.mu.Unlock()
	if atOnce {
		if rep := s.next(); rep.atOnce {
			s.finish(raw, raw, rep)
			return
		}
	}
	if s.secure != nil {
		conn = tls.Server(raw, s.secure)
	}
	in := bufio.NewReaderSize(conn, 4096)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			// respond to a bad request as real servers do
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			return
		}
		s.mu.Lock()
		s.requests++
		s.mu.Unlock()
		rep := accepts
		if !atOnce {
			rep = s.next()
		}
		if !s.handle(raw, conn, req, rep) {
			return
		}
	}
}

// handle serves one request and reports whether the connection stays open.
func (s *receiver) handle(raw, conn net.Conn, req *http.Request, rep reply) bool {
	if rep.early != "" {
		if _, err := io.WriteString(conn, rep.early); err != nil {
			return false
		}
	}
	if rep.part != 0 {
		_, _ = io.CopyN(io.Discard, req.Body, max(rep.part, 0))
	} else {
		body, err := readBody(req)
		if err != nil {
			return false
		}
		if !rep.discard {
			s.mu.Lock()
			s.bodies = append(s.bodies, body)
			s.mu.Unlock()
		}
	}
	return s.finish(raw, conn, rep)
}

// finish sends the response, and then ends the connection as the reply specifies. It reports
// whether the connection stays open.
func (s *receiver) finish(raw, conn net.Conn, rep reply) bool {
	if rep.wait > 0 && s.waits(rep.wait) {
		return false
	}
	for range rep.repeat + 1 {
		if send(conn, rep.answer, rep.drip) != nil {
			return false
		}
	}
	switch rep.end {
	case keepOpen:
		return true
	case resetConn:
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	case hang:
		s.waits(time.Minute)
	}
	return false
}

// waits waits for a time without reading from the connection. It ends early if the receiver is
// healed or stopped, and reports whether that was so.
func (s *receiver) waits(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.well:
		return true
	case <-timer.C:
		return false
	}
}

func send(conn net.Conn, text string, drip time.Duration) error {
	if drip == 0 {
		_, err := io.WriteString(conn, text)
		return err
	}
	tick := time.NewTicker(drip)
	defer tick.Stop()
	for i := range len(text) {
		<-tick.C
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func readBody(req *http.Request) (string, error) {
	var in io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(in)
		if err != nil {
			return "", err
		}
		in = z
	}
	var body strings.Builder
	_, err := io.Copy(&body, in)
	return body.String(), err
}
