package http_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

const twoHundred = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// TestResponseToPartOfARequest checks that a successful response does not count as a delivery if
// the request was not written completely.
func TestResponseToPartOfARequest(t *testing.T) {
	t.Parallel()
	part := func(r io.Reader) { _, _ = io.CopyN(io.Discard, r, 2<<20) }
	type talk func(c net.Conn, r *bufio.Reader, over <-chan struct{})
	for _, c := range []struct {
		name, accept string
		talk         talk
	}{
		{"nothing read, stalls", "", func(c net.Conn, _ *bufio.Reader, over <-chan struct{}) {
			_, _ = io.WriteString(c, twoHundred)
			<-over
		}},
		{"nothing read, closes", "", func(c net.Conn, _ *bufio.Reader, _ <-chan struct{}) {
			_, _ = io.WriteString(c, twoHundred)
		}},
		{"a quarter read, stalls", "", func(c net.Conn, r *bufio.Reader, over <-chan struct{}) {
			part(r)
			_, _ = io.WriteString(c, twoHundred)
			<-over
		}},
		{"a quarter read, closes", "", func(c net.Conn, r *bufio.Reader, _ <-chan struct{}) {
			part(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}},
		{"a quarter read, announces the close", "", func(c net.Conn, r *bufio.Reader, over <-chan struct{}) {
			part(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
			<-over
		}},
		{"a quarter read, chunked response", "", func(c net.Conn, r *bufio.Reader, over <-chan struct{}) {
			part(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
			<-over
		}},
		{"a quarter read, 409", "", func(c net.Conn, r *bufio.Reader, over <-chan struct{}) {
			part(r)
			_, _ = io.WriteString(c, "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")
			<-over
		}},
		{"a quarter read, accept holds", `body == "ok"`, func(c net.Conn, r *bufio.Reader, over <-chan struct{}) {
			part(r)
			_, _ = io.WriteString(c, "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nok")
			<-over
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ways(t, func(t *testing.T, w way) {
				over := make(chan struct{})
				url := w.serving(t, func(_ *nethttp.Request, conn net.Conn, r *bufio.Reader) { c.talk(conn, r, over) })
				lane := rawTo(t, url, func(o *http.Options) { w.set(t, o, url); o.Accept = expr.Text(c.accept) })
				b := lines(&stream.Pool{Poison: true}, big/1024, 1024)
				began := time.Now()
				err := deliver(t.Context(), lane, b)
				took := time.Since(began)
				b.Release()
				close(over)
				checkRetryable(t, err)
				if took > 10*time.Second {
					t.Errorf("Deliver took %v, want an error soon after the connection stalls", took)
				}
			})
		})
	}
}

// checkRetryable fails the test unless err is retryable.
func checkRetryable(t *testing.T, err error) {
	t.Helper()
	if err == nil || is[*stream.Rejected](err) || is[*stream.Misconfigured](err) || is[*stream.Throttled](err) {
		t.Errorf("Deliver: %v, want a retryable error", err)
	}
}

// TestPartOfARequestHTTP2 is TestResponseToPartOfARequest over HTTP/2.
func TestPartOfARequestHTTP2(t *testing.T) {
	t.Parallel()
	part := func(r *nethttp.Request) { _, _ = io.CopyN(io.Discard, r.Body, 2<<20) }
	for _, c := range []struct {
		name   string
		handle func(w nethttp.ResponseWriter, r *nethttp.Request, over <-chan struct{})
	}{
		{"nothing read, returns", func(nethttp.ResponseWriter, *nethttp.Request, <-chan struct{}) {}},
		{"nothing read, stalls", func(w nethttp.ResponseWriter, _ *nethttp.Request, over <-chan struct{}) {
			w.(nethttp.Flusher).Flush()
			<-over
		}},
		{"a quarter read, returns", func(_ nethttp.ResponseWriter, r *nethttp.Request, _ <-chan struct{}) { part(r) }},
		{"a quarter read, stalls", func(w nethttp.ResponseWriter, r *nethttp.Request, over <-chan struct{}) {
			part(r)
			w.Header().Set("Content-Length", "0")
			w.(nethttp.Flusher).Flush()
			<-over
		}},
		{"a quarter read, resets", func(w nethttp.ResponseWriter, r *nethttp.Request, _ <-chan struct{}) {
			part(r)
			w.(nethttp.Flusher).Flush()
			panic(nethttp.ErrAbortHandler)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, over := way{name: "HTTP/2", tls: true}, make(chan struct{})
			var major atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			url := w.handling(t, func(rw nethttp.ResponseWriter, r *nethttp.Request) {
				major.Store(int64(r.ProtoMajor))
				time.AfterFunc(3*time.Second, cancel) // a stalled request does not end by itself
				c.handle(rw, r, over)
			})
			b := lines(&stream.Pool{Poison: true}, big/1024, 1024)
			err := deliver(ctx, w.lane(t, url), b)
			b.Release()
			close(over)
			checkRetryable(t, err)
			if major.Load() != 2 {
				t.Errorf("the request came as HTTP/%d, want 2", major.Load())
			}
		})
	}
}

// arrivals counts the requests that arrive at a receiver, by idempotency key.
type arrivals struct {
	mu     sync.Mutex // guards byKey
	byKey  map[string]int
	broken map[string]bool // keys with a first request that got no response
}

// arrive counts a request and reports whether to respond to it.
func (a *arrivals) arrive(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byKey[key]++
	return !a.broken[key] || a.byKey[key] > 1
}

// TestEveryRequestIsAnAttempt checks that each call of Deliver sends one request, over every
// transport. It does not repeat a request that gets no response on a kept connection. The sink's
// counter `requests` must be equal to the number of calls.
func TestEveryRequestIsAnAttempt(t *testing.T) {
	for _, w := range append(slices.Clone(allWays), way{name: "HTTP/2", tls: true}) {
		t.Run(w.name, func(t *testing.T) {
			const batches = 20
			seen := &arrivals{byKey: map[string]int{}, broken: map[string]bool{}}
			url := w.handling(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if !seen.arrive(r.Header.Get("Penstock-Spans")) {
					panic(nethttp.ErrAbortHandler)
				}
			})
			host := connectortest.NewHost(t)
			lane := openRaw(t, host, url, func(o *http.Options) { w.set(t, o, url) })
			delivers := 0
			for i := range batches {
				b := lines(new(stream.Pool), 10, 100)
				b.Spans[0].Part = &stream.Partition{ID: fmt.Sprint("p", i), Name: "p"}
				if i%2 == 1 {
					seen.broken[string(b.AppendSpans(nil))] = true
				}
				for tries := 1; ; tries++ {
					delivers++
					err := deliver(t.Context(), lane, b)
					if err == nil && tries == 1 && seen.broken[string(b.AppendSpans(nil))] {
						t.Fatalf("batch %d: the first attempt was not answered and counts as delivered", i)
					}
					if err == nil {
						break
					}
					if checkRetryable(t, err); tries == 5 {
						t.Fatalf("batch %d: attempt %d: %v", i, tries, err)
					}
				}
			}
			total := 0
			for key, n := range seen.byKey {
				total += n
				if want := 1; !seen.broken[key] && n != want || seen.broken[key] && n != 2 {
					t.Errorf("key %s reached the receiver %d times, broken at first: %v", key, n, seen.broken[key])
				}
			}
			if got := host.Counted("requests"); got != int64(delivers) || total > delivers {
				t.Errorf("%d Delivers, %d requests at the receiver, counter requests %d", delivers, total, got)
			}
		})
	}
}

// TestStaleConnectionIsAnAttempt checks a receiver that reads a request on a kept connection and
// then closes the connection. Deliver must send the request only once, with and without an
// idempotency key.
func TestStaleConnectionIsAnAttempt(t *testing.T) {
	ways(t, func(t *testing.T, w way) {
		for _, key := range []expr.Text{http.DefaultOptions().IdempotencyKey, "false"} {
			var requests atomic.Int64
			url := w.serving(t, func(header *nethttp.Request, c net.Conn, r *bufio.Reader) {
				for {
					body := make([]byte, header.ContentLength)
					if _, err := io.ReadFull(r, body); err != nil || !bytes.HasSuffix(body, []byte("\n")) {
						return
					}
					if requests.Add(1)%2 == 0 {
						return // without a response
					}
					_, _ = io.WriteString(c, twoHundred)
					var err error
					if header, err = nethttp.ReadRequest(r); err != nil {
						return
					}
				}
			})
			lane := rawTo(t, url, func(o *http.Options) { w.set(t, o, url); o.IdempotencyKey = key })
			if err := deliver(t.Context(), lane, lines(new(stream.Pool), 10, 100)); err != nil {
				t.Fatal(err)
			}
			err := deliver(t.Context(), lane, lines(new(stream.Pool), 10, 100))
			checkRetryable(t, err)
			if n := requests.Load(); n != 2 {
				t.Errorf("idempotency_key %s: 2 Delivers sent %d requests", key, n)
			}
			if err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
				t.Errorf("idempotency_key %s: %v does not name the cause", key, err)
			}
		}
	})
}

// TestEmptyBody checks that a batch of empty records is sent like any other.
func TestEmptyBody(t *testing.T) {
	for _, w := range append(slices.Clone(allWays), way{name: "HTTP/2", tls: true}) {
		t.Run(w.name, func(t *testing.T) {
			lengths := make(chan int64, 1)
			url := w.handling(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) { lengths <- r.ContentLength })
			b := lines(new(stream.Pool), 1, 1)
			b.Data, b.Spans[0].Bytes = b.Data[:0], 0
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := deliver(ctx, w.lane(t, url), b); err != nil {
				t.Fatal(err)
			}
			if n := <-lengths; n != 0 {
				t.Errorf("the request has a body of %d bytes", n)
			}
		})
	}
}
