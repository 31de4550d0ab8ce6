package http_test

import (
	"bufio"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// talking starts a server that reads whole requests. For each request, it calls talk to respond,
// and closes the connection when talk returns false. It returns the URL and a counter of the
// connections.
func talking(t *testing.T, talk func(c net.Conn, request int) bool) (url string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	ended := make(chan struct{})
	serve := func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReader(c)
		for n := 1; ; n++ {
			req, err := nethttp.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil || !talk(c, n) {
				return
			}
		}
	}
	go func() {
		defer close(ended)
		var before []net.Conn
		for {
			c, err := listener.Accept()
			if err != nil {
				break
			}
			connections.Add(1)
			before = append(before, c)
			go serve(c)
		}
		for _, c := range before {
			c.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return "http://" + listener.Addr().String(), connections
}

// TestConnectionsAreKept checks that a connection serves several requests. It must not be reused in
// two cases: the response ends the connection (for example by Connection: close), or the server has
// sent bytes that belong to no request.
func TestConnectionsAreKept(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	const unasked = "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
	for _, c := range []struct {
		name, response, more string
		connections          int64
	}{
		{"a whole response", whole, "", 1},
		{"a response in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "", 1},
		{"a response without a body", "HTTP/1.1 204 No Content\r\n\r\n", "", 1},
		{"an interim response", "HTTP/1.1 100 Continue\r\n\r\n" + whole, "", 1},
		{"the end announced", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "", 5},
		{"an old protocol", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "", 5},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "", 5},
		{"more in the same segment", whole + unasked, "", 5},
		{"more later", whole, unasked, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			delivered, closed := make(chan struct{}), make(chan struct{})
			ends := strings.Contains(c.response+c.more, unasked)
			url, connections := talking(t, func(conn net.Conn, _ int) bool {
				_, _ = io.WriteString(conn, c.response)
				if !ends {
					return true
				}
				<-delivered
				_, _ = io.WriteString(conn, c.more)
				_, _ = io.Copy(io.Discard, conn) // until the sink closes the connection
				closed <- struct{}{}
				return false
			})
			lane := rawTo(t, url, nil)
			for range 5 {
				err := deliver(t.Context(), lane, lines(new(stream.Pool), 10, 100))
				if refused := strings.Contains(c.response, " 101 "); (err != nil) != refused {
					t.Fatal(err)
				}
				if ends {
					delivered <- struct{}{}
					<-closed
				}
			}
			if n := connections.Load(); n != c.connections {
				t.Errorf("5 requests took %d connections, want %d", n, c.connections)
			}
		})
	}
}

// TestEndlessHeaders checks that an endless header and endless interim responses are retryable
// errors.
func TestEndlessHeaders(t *testing.T) {
	for _, response := range []string{
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1<<10)+"\r\n\r\n", 70),
	} {
		url, _ := talking(t, func(c net.Conn, _ int) bool {
			_, err := io.WriteString(c, response)
			return err == nil
		})
		err := deliver(t.Context(), rawTo(t, url, nil), lines(new(stream.Pool), 10, 100))
		checkRetryable(t, err)
		if err == nil || !strings.Contains(err.Error(), "exceeded") {
			t.Errorf("Deliver: %v, want an error that names the limit", err)
		}
	}
}

// TestSlowReaders checks that a request is sent to its end although a response begins before the
// receiver has read all of it. The response is informational, has an incomplete status line, or is
// a 2xx with an unfinished body.
func TestSlowReaders(t *testing.T) { ways(t, testSlowReaders) }

func testSlowReaders(t *testing.T, w way) {
	const size, parts = 8 << 20, 4
	for _, c := range []struct{ name, early, late string }{
		{"one to be followed", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"half of one", "HTTP/1.1 20", "0 OK\r\nContent-Length: 0\r\n\r\n"},
		{"one with an open end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "0\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got atomic.Int64
			url := w.serving(t, func(head *nethttp.Request, conn net.Conn, r *bufio.Reader) {
				_, _ = io.WriteString(conn, c.early)
				for range parts {
					<-time.After(300 * time.Millisecond) // longer than the check interval
					n, err := io.CopyN(io.Discard, r, head.ContentLength/parts)
					if got.Add(n); err != nil {
						return
					}
				}
				_, _ = io.WriteString(conn, c.late)
			})
			if err := deliver(t.Context(), w.lane(t, url), lines(new(stream.Pool), size/1024, 1024)); err != nil {
				t.Error(err)
			}
			if n := got.Load(); n != size {
				t.Errorf("the receiver has read %d bytes, want %d", n, size)
			}
		})
	}
}
