package http_test

import (
	"bufio"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/flow"
)

// talking is a server that reads whole requests from each connection and lets talk answer them, until talk returns false. It returns
// the URL and counts the connections.
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

// TestConnectionsAreKept: one connection serves request after request, but not behind an answer after which none may follow, or after which
// something came that nobody has asked for: that is no answer to the next request.
func TestConnectionsAreKept(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, c := range []struct {
		name, answer, more string
		connections        int64
	}{
		{"a whole answer", whole, "", 1},
		{"an answer in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "", 1},
		{"an answer without a body", "HTTP/1.1 204 No Content\r\n\r\n", "", 1},
		{"an answer before the one that counts", "HTTP/1.1 100 Continue\r\n\r\n" + whole, "", 1},
		{"the end announced", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "", 5},
		{"an old protocol", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "", 5},
		{"more in the same segment", whole + "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "", 5},
		{"more later", whole, "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, taken := make(chan struct{}), make(chan struct{})
			url, connections := talking(t, func(conn net.Conn, _ int) bool {
				_, _ = io.WriteString(conn, c.answer)
				if c.more != "" {
					<-taken // Deliver has returned
					_, _ = io.WriteString(conn, c.more)
					said <- struct{}{}
				}
				return true
			})
			lane := rawTo(t, url, nil)
			for range 5 {
				if err := deliver(t.Context(), lane, lines(new(penstock.Pool), 10, 100)); err != nil {
					t.Fatal(err)
				}
				if c.more != "" {
					taken <- struct{}{}
					<-said
				}
			}
			if n := connections.Load(); n != c.connections {
				t.Errorf("5 requests took %d connections, want %d", n, c.connections)
			}
		})
	}
}

// TestEndlessHeads: a head without an end, and answers that never count, are given up, as the worker's fault.
func TestEndlessHeads(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n": "head is longer than 64 KiB",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 7):               "answers 1xx",
	} {
		url, _ := talking(t, func(c net.Conn, _ int) bool {
			_, err := io.WriteString(c, answer)
			return err == nil
		})
		err := deliver(t.Context(), rawTo(t, url, nil), lines(new(penstock.Pool), 10, 100))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Deliver: %v, want an error that says %q", err, want)
		}
		if is[*flow.Rejected](err) || is[*flow.Misconfigured](err) || is[*flow.Throttled](err) {
			t.Errorf("Deliver: %v, want it retryable", err)
		}
	}
}

// TestRepeatedOnlyWithAKey: what a kept connection has taken and not answered is sent again at once only if the receiver can tell a
// repetition by its key.
func TestRepeatedOnlyWithAKey(t *testing.T) {
	for key, want := range map[expr.Text]int64{http.DefaultOptions().IdempotencyKey: 3, "false": 2} {
		var requests atomic.Int64
		url, _ := talking(t, func(c net.Conn, _ int) bool {
			if requests.Add(1) == 2 {
				return false
			}
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			return err == nil
		})
		lane := rawTo(t, url, func(o *http.Options) { o.IdempotencyKey = key })
		if err := deliver(t.Context(), lane, lines(new(penstock.Pool), 10, 100)); err != nil {
			t.Fatal(err)
		}
		err := deliver(t.Context(), lane, lines(new(penstock.Pool), 10, 100))
		if (err == nil) != (want == 3) {
			t.Errorf("idempotency_key %s: Deliver: %v", key, err)
		}
		if err != nil && !strings.Contains(err.Error(), "closed the connection without an answer") {
			t.Errorf("idempotency_key %s: %v does not say what happened", key, err)
		}
		if n := requests.Load(); n != want {
			t.Errorf("idempotency_key %s: the receiver took %d requests, want %d", key, n, want)
		}
	}
}
