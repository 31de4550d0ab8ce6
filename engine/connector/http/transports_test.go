package http_test

import (
	"bufio"
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

	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/stream"
)

// way is a transport from the sink to a receiver. The tests of failing receivers use each of
// allWays.
type way struct {
	name    string
	tls     bool
	proxied bool
}

var allWays = []way{
	{name: "clear"},
	{name: "proxy", proxied: true},
	{name: "TLS", tls: true},
	{name: "TLS through a proxy", tls: true, proxied: true},
}

func ways(t *testing.T, test func(t *testing.T, w way)) {
	for _, w := range allWays {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// socketBuffer bounds the socket buffers of receivers and proxies, so that a sender blocks soon if
// the receiver does not read.
const socketBuffer = 64 << 10

// certified returns the certificate of httptest's servers, valid for 127.0.0.1, and its PEM block.
var certified = sync.OnceValues(func() (tls.Certificate, []byte) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.TLS.Certificates[0], block
})

func caFile(t testing.TB) string {
	t.Helper()
	_, block := certified()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// listen returns a listener with small socket buffers.
func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func accept(listener net.Listener) (net.Conn, error) {
	c, err := listener.Accept()
	if err == nil {
		shrink(c)
	}
	return c, err
}

func shrink(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(socketBuffer)
		_ = t.SetWriteBuffer(socketBuffer)
	}
}

// serving starts a server that accepts one connection at a time. For each connection, it reads the
// header of a request, calls talk and closes the connection. serving returns the URL of the server.
// At the end of the test, it waits for talk.
func (w way) serving(t *testing.T, talk func(header *nethttp.Request, c net.Conn, rest *bufio.Reader)) string {
	t.Helper()
	listener := listen(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := accept(listener)
			if err != nil {
				return
			}
			c = w.secure(c)
			rest := bufio.NewReaderSize(c, 512)
			if header, err := nethttp.ReadRequest(rest); err == nil {
				talk(header, c, rest)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return w.url(listener.Addr())
}

func (w way) secure(c net.Conn) net.Conn {
	if !w.tls {
		return c
	}
	certificate, _ := certified()
	return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}})
}

func (w way) url(address net.Addr) string {
	if w.tls {
		return "https://" + address.String()
	}
	return "http://" + address.String()
}

// lane returns the lane to url, through a proxy if w.proxied is set. Without TLS, the receiver
// itself acts as the proxy. With TLS, the proxy is a tunnel to the receiver.
func (w way) lane(t *testing.T, url string) stream.Lane {
	t.Helper()
	return rawTo(t, url, func(o *http.Options) { w.set(t, o, url) })
}

func (w way) set(t *testing.T, o *http.Options, url string) {
	if w.tls {
		o.TLS.CA = caFile(t)
	}
	switch {
	case w.proxied && w.tls:
		o.Proxy = tunnel(t)
	case w.proxied:
		o.Proxy = url
	}
}

// tunnel returns the URL of a proxy that answers CONNECT.
func tunnel(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := accept(listener)
			if err != nil {
				return
			}
			all.Go(func() { connect(c) })
		}
	})
	t.Cleanup(func() { listener.Close(); all.Wait() })
	return "http://" + listener.Addr().String()
}

// connect serves one CONNECT. It copies in both directions until either side closes its connection.
func connect(c net.Conn) {
	defer c.Close()
	rest := bufio.NewReader(c)
	req, err := nethttp.ReadRequest(rest)
	if err != nil {
		return
	}
	far, err := net.Dial("tcp", req.Host)
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer far.Close()
	shrink(far)
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, far)
		c.Close()
	})
	_, _ = io.Copy(far, rest)
	far.Close()
	back.Wait()
}

// handling starts a net/http server for any way, including HTTP/2, and returns its URL.
func (w way) handling(t *testing.T, h nethttp.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = strings.Contains(w.name, "HTTP/2")
	certificate, _ := certified()
	if server.TLS = (&tls.Config{Certificates: []tls.Certificate{certificate}}); w.tls {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL
}
