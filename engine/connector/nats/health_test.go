package nats

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

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

// anyPartition assigns every partition that is offered.
type anyPartition struct{}

func (anyPartition) Assign(_ context.Context, offers []stream.PartitionOffer) (
	[]stream.Assignment, error,
) {
	out := make([]stream.Assignment, len(offers))
	for i := range offers {
		out[i] = stream.Assignment{Number: uint32(i + 1), Mark: stream.Mark{Part: offers[i].Part}}
	}
	return out, nil
}

func (anyPartition) Revoke(context.Context, []string) {}
func (anyPartition) Lost([]string)                    {}

// TestFailureOfReads checks a source whose requests get no response for a while, although the
// connection stays open. The source must report a failure after a minute, until it can read again.
func TestFailureOfReads(t *testing.T) {
	for _, durable := range []string{"", "d"} {
		t.Run("durable "+durable, func(t *testing.T) {
			t.Parallel()
			testFailureOfReads(t, durable)
		})
	}
}

func testFailureOfReads(t *testing.T, durable string) {
	user := &server.User{Username: "u", Password: "p"}
	options := &server.Options{Host: "127.0.0.1", Port: connectortest.FreePort(t), NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{user}}
	servers, err := server.NewServer(options.Clone())
	if err != nil {
		t.Fatal(err)
	}
	allow := func(deny ...string) {
		user.Permissions = &server.Permissions{Publish: &server.SubjectPermission{Deny: deny}}
		if err := servers.ReloadOptions(options.Clone()); err != nil {
			t.Fatal(err)
		}
	}
	servers.Start()
	t.Cleanup(func() { servers.Shutdown(); servers.WaitForShutdown() })
	if !servers.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	o := DefaultSourceOptions()
	o.URL, o.User, o.Password = servers.ClientURL(), "u", "p"
	o.Stream, o.Durable = "S", durable
	o.ConnectTimeout = 2 * time.Second
	s, err := NewSource(*o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	config := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}
	if _, err := c.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), stream.OpenOptions{
		Known:       func(func(stream.Mark) bool) {},
		Resume:      func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		Assignments: anyPartition{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- r.Read(t.Context(), stream.NewBatch(stream.BatchLimits{}))
	}()
	var reading *client
	for one := range s.clients {
		if one != c {
			reading = one
		}
	}
	if durable == "" {
		allow("$JS.API.STREAM.INFO.>")
	} else {
		allow("$JS.API.CONSUMER.MSG.NEXT.>")
	}
	for deadline := time.Now().Add(30 * time.Second); reading.failing.Load() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("no error is noted")
		}
		<-time.After(5 * time.Millisecond)
	}
	if err := s.Failure(); err != nil {
		t.Errorf("at once: %v", err)
	}
	before := *reading.failing.Load()
	before.since = before.since.Add(-2 * lostAfter)
	reading.failing.Store(&before)
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), "nothing could be read for 2m0s: ") {
		t.Errorf("after two minutes: %v", err)
	}
	allow()
	if _, err := c.js.Publish(t.Context(), "s", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the read ended with %v", err)
	}
	for deadline := time.Now().Add(30 * time.Second); s.Failure() != nil; {
		if time.Now().After(deadline) {
			t.Fatalf("read again: %v", s.Failure())
		}
		<-time.After(5 * time.Millisecond)
	}
}
