package nats

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// TestFailure checks that the source reports a failure while a reader has lost the servers for a
// minute, and not after the servers are back or the reader is closed.
func TestFailure(t *testing.T) {
	port := connectortest.FreePort(t)
	start := func() *server.Server {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("the server does not start")
		}
		return s
	}
	servers := start()
	o := DefaultSourceOptions()
	o.URL, o.Stream = servers.ClientURL(), "S"
	s, err := NewSource(*o, streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false }))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !is(); <-time.After(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("timeout: %s", what)
			}
		}
	}
	servers.Shutdown()
	servers.WaitForShutdown()
	until("the connection is lost", func() bool { return c.lost.Load() != nil })
	if err := s.Failure(); err != nil {
		t.Errorf("at once: %v", err)
	}
	before := time.Now().Add(-2 * lostAfter)
	c.lost.Store(&before)
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), "not connected for 2m0s") {
		t.Errorf("after two minutes: %v", err)
	}
	servers = start()
	defer servers.Shutdown()
	until("connected again", func() bool { return c.lost.Load() == nil })
	if err := s.Failure(); err != nil {
		t.Errorf("connected again: %v", err)
	}
	c.lost.Store(&before)
	c.close()
	if err := s.Failure(); err != nil || len(s.clients) > 0 {
		t.Errorf("closed: %v, %d clients", err, len(s.clients))
	}
}

// TestClosedClientsAreForgotten restarts a route often. Its source must not keep the closed
// clients of the earlier readers, even if nothing calls Failure.
func TestClosedClientsAreForgotten(t *testing.T) {
	servers, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	servers.Start()
	defer servers.Shutdown()
	if !servers.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	o := DefaultSourceOptions()
	o.URL, o.Stream = servers.ClientURL(), "S"
	s, err := NewSource(*o, streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false }))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := s.Open(t.Context(), stream.OpenOptions{}); err == nil {
			t.Fatal("a server without JetStream has a stream")
		}
	}
	if n := len(s.clients); n > 1 {
		t.Errorf("the source keeps %d clients, want at most 1", n)
	}
}
