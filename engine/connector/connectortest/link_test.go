package connectortest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestLink checks that a stalled link delivers later, and that a cut one never does.
func TestLink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	link := connectortest.NewLink(t, l.Addr().String())
	conn, err := net.Dial("tcp", link.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	echo := func(bound time.Duration) error {
		if err := conn.SetReadDeadline(time.Now().Add(bound)); err != nil {
			t.Fatal(err)
		}
		_, err := io.ReadFull(conn, make([]byte, 4))
		return err
	}
	send := func() {
		if _, err := conn.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if err := echo(10 * time.Second); err != nil {
		t.Fatalf("an open link: %v", err)
	}
	link.Stall()
	send()
	if err := echo(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a stalled link: %v", err)
	}
	link.Heal()
	if err := echo(10 * time.Second); err != nil {
		t.Fatalf("a link that is open again: %v", err)
	}
	link.Cut()
	if err := echo(10 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut link: %v", err)
	}
	again, err := net.Dial("tcp", link.Address())
	if err != nil {
		return // refused
	}
	defer again.Close()
	if n, err := again.Read(make([]byte, 1)); err == nil {
		t.Errorf("a cut link has answered %d bytes", n)
	}
}
