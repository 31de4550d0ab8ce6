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
	servers.Shutdown()
	servers.WaitForShutdown()
	await(t, "the connection is lost", func() bool { return c.lost.Load() != nil })
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
	await(t, "connected again", func() bool { return c.lost.Load() == nil })
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
	url, deny := startRestrictable(t)
	o := DefaultSourceOptions()
	o.URL, o.User, o.Password = url, "u", "p"
	o.Stream, o.Durable = "S", durable
	o.ConnectTimeout = 2 * time.Second
	s, err := NewSource(*o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.connect(s.host.Log(), ackBuffer)
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
	if durable == "" {
		deny("$JS.API.STREAM.INFO.>")
	} else {
		deny("$JS.API.CONSUMER.MSG.NEXT.>")
	}
	var reading *client
	for reading = range s.clients {
	}
	await(t, "an error of a read", func() bool { return reading.failing.Load() != nil })
	if err := s.Failure(); err != nil {
		t.Errorf("at once: %v", err)
	}
	before := *reading.failing.Load()
	before.since = before.since.Add(-2 * lostAfter)
	reading.failing.Store(&before)
	const want = "nothing could be read for 2m0s: "
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("after two minutes: %v", err)
	}
	deny()
	if _, err := c.js.Publish(t.Context(), "s", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the read ended with %v", err)
	}
	await(t, "the end of the failure", func() bool { return s.Failure() == nil })
}

// startRestrictable starts a server with the user u. It returns its URL, and a function that
// replaces the subjects to which the user may not publish.
func startRestrictable(t *testing.T) (url string, deny func(subjects ...string)) {
	t.Helper()
	user := &server.User{Username: "u", Password: "p"}
	options := &server.Options{Host: "127.0.0.1", Port: connectortest.FreePort(t), NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{user}}
	s, err := server.NewServer(options.Clone())
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL(), func(subjects ...string) {
		user.Permissions = &server.Permissions{
			Publish: &server.SubjectPermission{Deny: subjects},
		}
		if err := s.ReloadOptions(options.Clone()); err != nil {
			t.Fatal(err)
		}
	}
}

// await waits for a condition.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
	}
}
