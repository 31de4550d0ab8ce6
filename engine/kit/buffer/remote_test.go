//go:build !no_nats

package buffer

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// servers is a cluster of NATS servers.
type servers struct {
	all []*server.Server
	o   []*server.Options
}

// startServers starts a cluster of count servers, and waits until streams can be created on it.
func startServers(t *testing.T, count int) *servers {
	t.Helper()
	s := new(servers)
	t.Cleanup(func() {
		for _, one := range s.all {
			one.Shutdown()
			one.WaitForShutdown()
		}
	})
	var routes []int // ports
	for range count {
		routes = append(routes, connectortest.FreePort(t))
	}
	for i := range count {
		o := &server.Options{
			ServerName: fmt.Sprint("n", i+1), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, MaxPayload: 8 << 20,
		}
		if count > 1 {
			o.Cluster = server.ClusterOpts{Name: "buffers", Host: "127.0.0.1", Port: routes[i]}
			for _, route := range routes { // JetStream does not start without
				host := fmt.Sprint("127.0.0.1:", route)
				o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: host})
			}
		}
		one, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		one.Start()
		s.all, s.o = append(s.all, one), append(s.o, o)
	}
	for _, one := range s.all {
		if !one.ReadyForConnections(20 * time.Second) {
			t.Fatal("a server is not ready")
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for count > 1 && !s.ready() {
		if time.Now().After(deadline) {
			t.Fatal("the servers have no leader")
		}
		<-time.After(20 * time.Millisecond)
	}
	return s
}

// ready reports whether all servers know the leader of their group.
func (s *servers) ready() bool {
	leaders := 0
	for _, one := range s.all {
		if one.JetStreamIsLeader() {
			leaders++
		}
		if !one.JetStreamIsCurrent() {
			return false
		}
	}
	return leaders == 1
}

// urls returns the addresses of the servers.
func (s *servers) urls() string {
	var all []string
	for _, one := range s.all {
		all = append(all, one.ClientURL())
	}
	return strings.Join(all, ",")
}

// startRemote starts a buffer in a stream of other servers.
func startRemote(t *testing.T, o Options) *process {
	t.Helper()
	p := &process{host: streamtest.NewHost(t)}
	b, err := newBuffer(o, intake.Options{Name: "test", Remember: time.Hour}, p.host, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.b = b
	return p
}

// mustOpen waits until the buffer is open. It fails the test if the buffer cannot be opened, for
// example because the servers have no room on their disk.
func (p *process) mustOpen(t *testing.T) {
	t.Helper()
	<-p.b.opened
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.b.failed != nil {
		t.Fatal(p.b.failed)
	}
}

func remoteOptions(url string, replicas int) Options {
	o := DefaultOptions()
	o.maxRecord = 1 << 20
	o.NATS = NATS{Options: natsaccess.Options{URL: url}, Stream: "push", Replicas: replicas}
	return o
}

// TestRemote stores data on external servers. Another process must be able to read all of it, and
// repeated requests must not be stored again. With PENSTOCK_PUSH, there are three servers, and the
// stream's leader is stopped in the middle of the test.
func TestRemote(t *testing.T) {
	count := 1 // as few for the short tests
	if os.Getenv("PENSTOCK_PUSH") != "" {
		count = 3
	}
	s := startServers(t, count)
	o := remoteOptions(s.urls(), count)
	if err := Check(Buffered, o, o.maxRecord); err != nil {
		t.Fatal(err)
	}
	p := startRemote(t, o)
	p.mustOpen(t)
	store := func(text string) {
		t.Helper()
		sub := p.offer(t, text, intake.Lines([]byte(text+"\n")))
		if err := sub.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	store("1")
	store("2")
	info, err := p.b.store.(*jetStream).stream.Info(t.Context())
	if err != nil || info.Config.Replicas != count {
		t.Fatalf("the stream has %+v, %v", info, err)
	}
	for _, one := range s.all {
		if count > 1 && one.Name() == info.Cluster.Leader {
			one.Shutdown()
		}
	}
	store("3")
	p.stop(t)

	p = startRemote(t, o)
	p.mustOpen(t)
	store("2")
	store("4")
	r := &route{name: streamtest.Route}
	r.open(t, p)
	_, texts := r.readAll(t, true)
	if got := strings.Join(texts, " "); got != "1 2 3 4" {
		t.Errorf("read %s, want 1 2 3 4", got)
	}
	p.stop(t)
}

// TestRemoteRefuses checks that the buffer refuses a stream that may lose data, with the reason in
// the error. It also refuses servers that cannot accept the longest record.
func TestRemoteRefuses(t *testing.T) {
	s := startServers(t, 1)
	conn, err := nats.Connect(s.urls())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	open := func(o Options) error {
		store, err := OpenStore(t.Context(), "", o, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = store.Close()
		}
		return err
	}
	good := func() jetstream.StreamConfig {
		return streamConfig("push", "penstock-buffer.push", DefaultOptions(), 1)
	}
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"a max_age of": func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"the retention Interest": func(c *jetstream.StreamConfig) {
			c.Retention = jetstream.InterestPolicy
		},
		"the retention WorkQueue": func(c *jetstream.StreamConfig) {
			c.Retention = jetstream.WorkQueuePolicy
		},
		"the policy DiscardOld":     func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"a max_msgs of":             func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
		"a max_msgs_per_subject of": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 },
		"max_bytes below":           func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 },
		"the storage Memory":        func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"a max_msg_size below":      func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 << 10 },
		"deny_purge true":           func(c *jetstream.StreamConfig) { c.DenyPurge = true },
		"no_ack true":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"allow_direct":              func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"the subjects other":        func(c *jetstream.StreamConfig) { c.Subjects = []string{"other"} },
	} {
		config := good()
		change(&config)
		createStream(t, js, config)
		err := open(remoteOptions(s.urls(), 0))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open = %v, want %q", err, want)
		}
		if err := js.DeleteStream(t.Context(), "push"); err != nil {
			t.Fatal(err)
		}
	}
	createStream(t, js, good())
	if err := open(remoteOptions(s.urls(), 0)); err != nil {
		t.Error(err)
	}
	long := remoteOptions(s.urls(), 0)
	long.maxRecord = 8 << 20
	if err := open(long); err == nil || !strings.Contains(err.Error(), "raise max_payload") {
		t.Errorf("open = %v", err)
	}
}

// createStream creates a stream. It retries while the server still removes the files of a deleted
// stream with the same name.
func createStream(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig) {
	t.Helper()
	create := func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, config)
		return err
	}
	if err := retry.Do(t.Context(), create, retry.Options{MaxElapsed: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// TestRemoteOneWriter checks two processes that store in one stream. The second one must get an
// error, and nothing may be stored twice.
func TestRemoteOneWriter(t *testing.T) {
	s := startServers(t, 1)
	o := remoteOptions(s.urls(), 1)
	store, err := OpenStore(t.Context(), "", o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Append(t.Context(), 1, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	err = store.Append(t.Context(), 1, []byte("another's"))
	if err == nil || !strings.Contains(err.Error(), "another process has stored") {
		t.Errorf("Append = %v", err)
	}
	// The acknowledgement of the first was lost: it is found.
	if err := store.Append(t.Context(), 1, []byte("mine")); err != nil {
		t.Error(err)
	}
	err = store.Append(context.Background(), 5, []byte("behind a gap"))
	if err == nil || !strings.Contains(err.Error(), "it lost data") {
		t.Errorf("Append = %v", err)
	}
}

// TestRemoteClosed makes the library close the connection permanently. The source must then fail,
// so that the engine restarts it. The request that was being stored must not succeed. The next
// start must refuse the servers, because their max_payload was lowered.
func TestRemoteClosed(t *testing.T) {
	s := startServers(t, 1)
	limit := func(bytes int32) {
		t.Helper()
		changed := s.o[0].Clone()
		changed.MaxPayload = bytes
		if err := s.all[0].ReloadOptions(changed); err != nil {
			t.Fatal(err)
		}
	}
	o := remoteOptions(s.urls(), 1)
	p := startRemote(t, o)
	p.add(t, "1")
	failed := func(want string) {
		t.Helper()
		select {
		case <-p.host.Failed():
		case <-time.After(20 * time.Second):
			t.Fatalf("the source runs, want the error %q", want)
		}
		if err := p.host.Stop(); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("the source failed with %v, want %q", err, want)
		}
	}
	limit(1000)
	long := strings.Repeat("x", 5000)
	sub := p.offer(t, "2", intake.Lines([]byte(long+"\n")))
	failed("Maximum Payload Violation")
	ended, end := context.WithCancel(t.Context()) // Wait returns a known outcome nevertheless
	end()
	if err := sub.Wait(ended); err == nil {
		t.Error("a request that was not stored succeeded")
	}
	p = startRemote(t, o)
	failed("raise max_payload")
	limit(s.o[0].MaxPayload)
	p = startRemote(t, o)
	p.add(t, long)
	r := &route{name: streamtest.Route}
	r.open(t, p)
	_, texts := r.readAll(t, true)
	if got := strings.Join(texts, " "); got != "1 "+long {
		t.Errorf("read %.20q, want 1 and the long record", texts)
	}
	p.stop(t)
}
