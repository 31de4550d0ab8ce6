package notify

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// goingAway is a listener. At its first connection, it reads a request over HTTP/2, and reports
// with a GOAWAY frame that no request was processed.
type goingAway struct {
	net.Listener
	config func() *tls.Config
	once   sync.Once
}

func (l *goingAway) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.once.Do(func() {
		if err == nil {
			_ = refuseStreams(tls.Server(c, l.config()))
			c, err = l.Listener.Accept()
		}
	})
	return c, err
}

// refuseStreams sends a GOAWAY frame when the first data of a request has arrived.
func refuseStreams(c *tls.Conn) error {
	defer c.Close()
	const preface, header = 24, 9
	if _, err := io.CopyN(io.Discard, c, preface); err != nil {
		return err
	}
	if _, err := c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil { // SETTINGS
		return err
	}
	for {
		var h [header]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return err
		}
		size := int64(h[0])<<16 | int64(h[1])<<8 | int64(h[2])
		if _, err := io.CopyN(io.Discard, c, size); err != nil {
			return err
		}
		if h[3] == 0 { // DATA
			// the last processed stream is 0, and the error code is NO_ERROR
			_, err := c.Write([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
			return err
		}
	}
}

// wasAttempted reports whether the first attempt of a delivery has ended.
func wasAttempted(d stream.Delivery) bool { return d.State == "done" || d.Attempt > 1 }

// TestGoingAway checks that a request is repeated at once if the receiver reports over HTTP/2 that
// it has not processed it.
func TestGoingAway(t *testing.T) {
	t.Parallel()
	major := make(chan int, 1)
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(
		func(_ nethttp.ResponseWriter, r *nethttp.Request) { major <- r.ProtoMajor },
	))
	server.EnableHTTP2 = true
	server.Listener = &goingAway{
		Listener: server.Listener, config: func() *tls.Config { return server.TLS },
	}
	server.StartTLS()
	defer server.Close()
	o := overNetwork(t, server.URL)
	o.Async, o.Accept, o.CA = DefaultOptions().Async, "", authority(t, server)
	f := newFixture(t, t.TempDir(), o, nil, false)
	defer f.stop()
	if err := f.deliver("order-1"); err != nil {
		t.Fatal(err)
	}
	d := awaitDelivery(t, f.Deliveries(), "order-1", wasAttempted)
	if d.State != "done" {
		t.Fatalf("the delivery is %+v", d)
	}
	if n := <-major; n != 2 {
		t.Errorf("the request came over HTTP/%d, want 2", n)
	}
}

// authority writes the certificate of a server to a file, and returns the path of the file.
func authority(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestResponseBeforeRequest checks that an attempt ends in time if an HTTP/2 receiver sends the
// header of its response, and then neither reads the request's body nor sends its own.
func TestResponseBeforeRequest(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(
		func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.(nethttp.Flusher).Flush()
			<-over
		},
	))
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &nethttp.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	server.StartTLS()
	defer server.Close()
	o := overNetwork(t, server.URL)
	o.Async, o.CA, o.Timeout = DefaultOptions().Async, authority(t, server), 500*time.Millisecond
	o.IdempotencyKey = `"order-1"`
	f := newFixture(t, t.TempDir(), o, nil, false)
	defer f.stop()
	defer close(over)
	if err := f.deliver(strings.Repeat("x", 500_000)); err != nil {
		t.Fatal(err)
	}
	d := awaitDelivery(t, f.Deliveries(), "order-1", wasAttempted)
	if d.Last.Detail != "response 200: no response in time" {
		t.Errorf("the last attempt is %+v", d.Last)
	}
}

// TestSwitchedProtocol checks that an attempt ends if the receiver responds with 101 and leaves the
// connection open.
func TestSwitchedProtocol(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewServer(nethttp.HandlerFunc(
		func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			c, _, err := w.(nethttp.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			const status = "HTTP/1.1 101 Switching Protocols\r\n"
			const header = "Connection: Upgrade\r\nUpgrade: x\r\n\r\n"
			if _, err := io.WriteString(c, status+header); err != nil {
				t.Error(err)
			}
			<-over
			c.Close()
		},
	))
	defer server.Close()
	o := overNetwork(t, server.URL)
	o.Async, o.Accept = DefaultOptions().Async, ""
	f := newFixture(t, t.TempDir(), o, nil, false)
	defer f.stop()
	defer close(over)
	if err := f.deliver("order-1"); err != nil {
		t.Fatal(err)
	}
	d := awaitDelivery(t, f.Deliveries(), "order-1", wasAttempted)
	if d.State != "waiting" || d.Last.Status != nethttp.StatusSwitchingProtocols {
		t.Errorf("the delivery is %+v, its last attempt %+v", d, d.Last)
	}
}

// TestBrokenConnection checks that a request is not repeated if the receiver closes a connection
// over HTTP/1 without a response, because it may have processed the request.
func TestBrokenConnection(t *testing.T) {
	for _, body := range []expr.Text{"", `""`} { // the record, and no body
		t.Run("body "+string(body), func(t *testing.T) { testBrokenConnection(t, body) })
	}
}

func testBrokenConnection(t *testing.T, body expr.Text) {
	t.Parallel()
	requests := make(chan string, 10)
	server := httptest.NewServer(nethttp.HandlerFunc(
		func(_ nethttp.ResponseWriter, r *nethttp.Request) {
			key := r.Header.Get("Idempotency-Key")
			if requests <- key; key == "order-2" {
				panic(nethttp.ErrAbortHandler)
			}
		},
	))
	defer server.Close()
	o := overNetwork(t, server.URL)
	o.Async, o.Accept, o.Body = DefaultOptions().Async, "", body
	o.Headers = map[string]expr.Text{"X-Idempotency-Key": `"a"`}
	f := newFixture(t, t.TempDir(), o, nil, false)
	defer f.stop()
	var last stream.Delivery
	for _, key := range []string{"order-1", "order-2"} {
		if err := f.deliver(key); err != nil {
			t.Fatal(err)
		}
		last = awaitDelivery(t, f.Deliveries(), key, wasAttempted)
	}
	if last.State != "waiting" || last.Last.Detail != errNoResponse.Error() {
		t.Errorf("the delivery is %+v, its last attempt %+v", last, last.Last)
	}
	if len(requests) != 2 {
		t.Errorf("%d requests arrived, want 2", len(requests))
	}
}

// respondSlowly is a transport. Each response has the status 200 and a body that ends when the
// context ends. A read then fails with the error of the context, as over HTTP/2.
type respondSlowly struct{}

func (respondSlowly) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	body := io.NopCloser(readerFunc(func([]byte) (int, error) {
		<-r.Context().Done()
		return 0, r.Context().Err()
	}))
	return &nethttp.Response{StatusCode: 200, Body: body}, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestStopDuringBody checks that an attempt that a stop interrupts does not count, even if the
// receiver has already sent the header of its response.
func TestStopDuringBody(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		f := openFixture(t, dir, options(), nil, respondSlowly{}, false)
		if err := f.deliver("a order-1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the attempt reads the body
		f.stop()
		f = openFixture(t, dir, options(), nil, respondSlowly{}, false)
		defer f.stop()
		d, err := f.Deliveries().Delivery(t.Context(), "order-1")
		if err != nil || d.Attempt != 1 || d.Last != nil {
			t.Errorf("after the restart: %v, next attempt %d, last attempt %+v", err, d.Attempt,
				d.Last)
		}
	})
}
