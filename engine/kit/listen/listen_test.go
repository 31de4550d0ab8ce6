package listen_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/listen"
)

const patience = 20 * time.Second

// accepted is a connection with its client's side.
type accepted struct {
	server *listen.Conn
	client net.Conn
}

// closed waits until the server has closed the connection.
func (a accepted) closed(t *testing.T) {
	t.Helper()
	_ = a.client.SetReadDeadline(time.Now().Add(patience))
	if _, err := a.client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection was not closed: %v", err)
	}
}

// TestLimit checks the limit of connections. When it is reached, the connection that has been idle
// longest is closed for a new one. If none is idle, Accept waits for one.
func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := listen.Limit(inner, 2)
	defer l.Close()
	got := make(chan *listen.Conn)
	go func() {
		defer close(got)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			got <- c.(*listen.Conn)
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a := accepted{client: dial()}
	a.server = <-got
	b := accepted{client: dial()}
	b.server = <-got
	b.server.SetIdle(true)
	a.server.SetIdle(true)
	c := accepted{client: dial()}
	c.server = <-got // in place of b
	b.closed(t)
	a.server.SetIdle(false)
	d := accepted{client: dial()}
	select {
	case <-got:
		t.Fatal("more connections than the limit, though none is idle")
	default:
	}
	c.server.SetIdle(true)
	d.server = <-got
	c.closed(t)
	if err := a.server.Close(); err != nil {
		t.Error(err)
	}
	e := accepted{client: dial()}
	e.server = <-got // in place of a
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, open := <-got; open {
		t.Error("a connection was accepted after Close")
	}
}

// TestClosedIsNotIdle closes a connection before its last request ends. After that, the connection
// must not count as idle. Otherwise new connections would wait although others are idle.
func TestClosedIsNotIdle(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := listen.Limit(inner, 1)
	defer l.Close()
	var clients []net.Conn
	accept := func() *listen.Conn {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
		got := make(chan *listen.Conn, 1)
		go func() {
			if c, err := l.Accept(); err == nil {
				got <- c.(*listen.Conn)
			}
		}()
		select {
		case c := <-got:
			return c
		case <-time.After(patience):
			t.Fatal("no connection was accepted, though one is idle")
			return nil
		}
	}
	for range 3 {
		c := accept()
		_ = c.Close() // the client has disconnected
		c.SetIdle(true)
	}
	accept().SetIdle(true)
	accept()
	accepted{client: clients[3]}.closed(t)
}

func TestTokens(t *testing.T) {
	k := listen.NewKeyring("", listen.Tokens{"alpha": "secret-a", "beta": "secret-b"})
	for token, want := range map[string]string{"secret-a": "alpha", "secret-b": "beta", "": "",
		"secret-": "", "secret-aa": ""} {
		if name, ok := k.Holder(token); name != want || ok != (want != "") {
			t.Errorf("Holder(%q) = %q, %v", token, name, ok)
		}
	}
	for header, want := range map[string]string{
		"Bearer secret-a": "alpha", "apikey  secret-b ": "beta",
		"Basic bm9ib2R5OnNlY3JldC1i": "beta", // its password is secret-b
		"":                           "", "Bearer": "", "Basic secret-a": "", "Digest secret-a": "",
		"Basic c2VjcmV0LWE=": "", // no colon
	} {
		if name, ok := k.Authorize(header); name != want || ok != (want != "") {
			t.Errorf("Authorize(%q) = %q, %v", header, name, ok)
		}
	}
	if !listen.NewKeyring("", nil).Empty() || k.Empty() {
		t.Error("Empty is wrong")
	}
}
