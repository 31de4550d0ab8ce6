package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener that accepts pipes as connections.
type pipes struct {
	net.Listener
	accepted chan net.Conn
	closed   chan struct{}
}

// Accept implements net.Listener.
func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipes) Close() error {
	close(l.closed)
	return nil
}

// losing is a connection that loses everything that is written while lost is set.
type losing struct {
	net.Conn
	lost *atomic.Bool
}

// Write implements net.Conn.
func (c *losing) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestDeadConnection checks that an HTTP/2 connection is not used again after its receiver has
// vanished, for example because a firewall has forgotten the connection.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{
			Protocols: new(http.Protocols),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto)
			}),
		}
		server.Protocols.SetUnencryptedHTTP2(true)
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		tr := NewTransport(&Dialer{}, TransportOptions{})
		defer tr.CloseIdleConnections()
		tr.Protocols = server.Protocols
		var lost *atomic.Bool // of the last connection
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			l.accepted <- b
			lost = new(atomic.Bool)
			return &losing{a, lost}, nil
		}
		send := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://shop.example/", nil)
			if err != nil {
				return err
			}
			res, err := tr.RoundTrip(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.ProtoMajor != 2 {
				t.Errorf("the response came over %s", res.Proto)
			}
			_, err = io.Copy(io.Discard, res.Body)
			return err
		}
		if err := send(); err != nil {
			t.Fatal(err)
		}
		lost.Store(true)
		if err := send(); err == nil {
			t.Fatal("a request over the dead connection got a response")
		}
		if err := send(); err != nil {
			t.Errorf("the next request: %v", err)
		}
	})
}
