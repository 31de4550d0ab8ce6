package http_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
)

const big = 8 << 20 // bytes; more than the socket buffers between two processes hold

// TestEarlyAnswer checks a server that responds before it has read the body, and continues to read.
// The test overwrites the memory of the batch after Deliver has returned. The server must not
// receive any of the new bytes.
func TestEarlyAnswer(t *testing.T) { ways(t, testEarlyAnswer) }

func testEarlyAnswer(t *testing.T, w way) {
	for answer, timeout := range map[string]time.Duration{
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n": 20 * time.Second,
		// The rest of this one never arrives, so Deliver waits until its context ends.
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nConnection: close\r\n\r\nabc": 3 * time.Second,
	} {
		read := make(chan int64, 1)
		returned := make(chan struct{})
		url := w.serving(t, func(head *nethttp.Request, c net.Conn, rest *bufio.Reader) {
			_, _ = io.WriteString(c, answer)
			<-returned
			var seen int64
			buf := make([]byte, 64<<10)
			for {
				n, err := rest.Read(buf)
				seen += int64(n)
				if bytes.IndexByte(buf[:n], 0xDB) >= 0 {
					t.Errorf("after %d bytes the server read memory that had been released", seen)
					break
				}
				if err != nil {
					break
				}
			}
			read <- seen
		})
		pool := &stream.Pool{Poison: true}
		b := lines(pool, big/1024, 1024)
		lane := w.lane(t, url)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := deliver(ctx, lane, b)
		cancel()
		b.Release()
		close(returned)
		if _, ok := errors.AsType[*stream.Throttled](err); !ok {
			t.Fatalf("Deliver: %v, want throttled", err) // perhaps the server was not asked
		}
		if n := <-read; n >= big {
			t.Errorf("the server read the whole body, %d bytes: the test shows nothing", n)
		}
	}
}

// TestHangs checks servers that read nothing, never respond, or send only a part of a response.
// Deliver must return soon after its context ends. After that, the caller may reuse the batch.
func TestHangs(t *testing.T) { ways(t, testHangs) }

func testHangs(t *testing.T, w way) {
	enough := errors.New("abandoned")
	for _, c := range []struct {
		name string
		talk func(net.Conn, *bufio.Reader, int64)
	}{
		{"reads nothing", func(net.Conn, *bufio.Reader, int64) {}},
		{"never answers", func(_ net.Conn, r *bufio.Reader, n int64) { _, _ = io.CopyN(io.Discard, r, n) }},
		{"answers half a head", func(c net.Conn, r *bufio.Reader, n int64) {
			_, _ = io.CopyN(io.Discard, r, n)
			_, _ = io.WriteString(c, "HTTP/1.1 20")
		}},
		{"answers half a body", func(c net.Conn, r *bufio.Reader, n int64) {
			_, _ = io.CopyN(io.Discard, r, n)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			over := make(chan struct{})
			url := w.serving(t, func(head *nethttp.Request, conn net.Conn, r *bufio.Reader) {
				c.talk(conn, r, head.ContentLength)
				<-over
			})
			pool := &stream.Pool{Poison: true}
			b := lines(pool, 1024, 1024)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, enough)
			defer cancel()
			began := time.Now()
			err := deliver(ctx, w.lane(t, url), b)
			took := time.Since(began)
			b.Release()
			close(over)
			if !errors.Is(err, enough) && !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
				t.Errorf("Deliver: %v after %v, want the cause of its context after 200 ms", err, took)
			}
		})
	}
}

// TestCutAnswers checks that a truncated or malformed response is retryable, whatever its status.
// It means that the connection failed, and not that the receiver rejects the data.
func TestCutAnswers(t *testing.T) { ways(t, testCutAnswers) }

func testCutAnswers(t *testing.T, w way) {
	for _, answer := range []string{
		"", "HTTP/1.1 20", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		url := w.serving(t, func(head *nethttp.Request, c net.Conn, r *bufio.Reader) {
			_, _ = io.CopyN(io.Discard, r, head.ContentLength)
			_, _ = io.WriteString(c, answer)
		})
		err := deliver(t.Context(), w.lane(t, url), lines(new(stream.Pool), 10, 10))
		if err == nil {
			t.Errorf("answer %q counts as delivered", answer)
		}
		for _, wrong := range []bool{is[*stream.Rejected](err), is[*stream.Misconfigured](err),
			is[*stream.Throttled](err)} {
			if wrong {
				t.Errorf("answer %q gives %v, want a retryable error", answer, err)
			}
		}
	}
	gone := w.url(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: connectortest.FreePort(t)})
	if err := deliver(t.Context(), w.lane(t, gone), lines(new(stream.Pool), 1, 10)); err == nil ||
		is[*stream.Misconfigured](err) {
		t.Errorf("a refused connection gives %v, want a retryable error", err)
	}
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// TestLongAnswer checks that an endless response is read up to a bound and judged by its status.
func TestLongAnswer(t *testing.T) { ways(t, testLongAnswer) }

func testLongAnswer(t *testing.T, w way) {
	url := w.serving(t, func(head *nethttp.Request, c net.Conn, r *bufio.Reader) {
		_, _ = io.CopyN(io.Discard, r, head.ContentLength)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := c.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	if err := deliver(t.Context(), w.lane(t, url), lines(new(stream.Pool), 1, 10)); err != nil {
		t.Errorf("Deliver: %v", err)
	}
}

// TestStaleConnection checks a server that closes idle connections without notice. A closed
// connection costs at most one attempt, and the retry sends the whole batch.
func TestStaleConnection(t *testing.T) { ways(t, testStaleConnection) }

func testStaleConnection(t *testing.T, w way) {
	var requests atomic.Int64
	url := w.serving(t, func(head *nethttp.Request, c net.Conn, r *bufio.Reader) {
		body := make([]byte, head.ContentLength)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		requests.Add(1)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	lane := w.lane(t, url)
	const batches, tries = 50, 10
	for range batches {
		var err error
		for range tries {
			if err = deliver(t.Context(), lane, lines(new(stream.Pool), 10, 100)); err == nil {
				break
			}
			if is[*stream.Rejected](err) || is[*stream.Misconfigured](err) {
				t.Fatalf("Deliver: %v, want a retryable error", err)
			}
		}
		if err != nil {
			t.Fatalf("Deliver, try %d: %v", tries, err)
		}
	}
	if n := requests.Load(); n != batches {
		t.Errorf("the server took %d whole requests, want %d", n, batches)
	}
}

// TestOneWriteARequest checks that the header and body of a small request arrive in one segment, so
// that the receiver does not wake up for the header alone.
func TestOneWriteARequest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const requests = 3
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 64<<10)
		for i := range requests {
			n, _ := c.Read(buf)
			if _, body, _ := bytes.Cut(buf[:n], []byte("\r\n\r\n")); len(body) != 1000 {
				t.Errorf("request %d: the first %d bytes have %d of the body's 1000", i+1, n, len(body))
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	lane := rawTo(t, "http://"+listener.Addr().String(), nil)
	for range requests {
		if err := deliver(t.Context(), lane, lines(new(stream.Pool), 10, 100)); err != nil {
			t.Error(err)
			break
		}
	}
	listener.Close()
	<-ended
}
