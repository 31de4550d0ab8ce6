//go:build !no_nats

package registry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
)

// fixture is a server and the directory of its workers.
type fixture struct {
	*testing.T
	server    *server.Server
	config    *server.Options
	o         natsaccess.Options
	directory *Directory
	log       *slog.Logger
	ended     chan error // results of Announce
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	config := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true}
	s, err := server.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	f := &fixture{T: t, server: s, config: config, o: natsaccess.Options{URL: s.ClientURL()},
		log: slog.New(slog.DiscardHandler), ended: make(chan error, 2)}
	if f.directory, err = Open(f.o, "workers", f.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.directory.Close)
	return f
}

func (f *fixture) announce(ctx context.Context, address string, ready func() bool) {
	go func() { f.ended <- Announce(ctx, f.o, "workers", address, ready, f.log) }()
}

// until asks until the wanted addresses are found.
func (f *fixture) until(want ...string) {
	f.Helper()
	f.ask(fmt.Sprintf("%q", want), func(got []string, err error) bool {
		return err == nil && slices.Equal(got, want)
	})
}

// ask asks until isWanted returns true.
func (f *fixture) ask(want string, isWanted func(got []string, err error) bool) {
	f.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		got, err := f.directory.Ask(f.Context())
		if isWanted(got, err) {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("%q, %v; want %s", got, err, want)
		}
	}
}

// limit changes the server's max_payload. Clients do not learn of the change. The server closes a
// connection that sends a larger message, and the library does not restore the connection.
func (f *fixture) limit(bytes int32) {
	changed := f.config.Clone()
	changed.MaxPayload = bytes
	if err := f.server.ReloadOptions(changed); err != nil {
		f.Error(err)
	}
}

// TestRegistry checks that workers are found while they announce themselves and are ready.
func TestRegistry(t *testing.T) {
	f := newFixture(t)
	f.until()
	var drains atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	f.announce(t.Context(), "10.0.0.2:80", func() bool { return !drains.Load() })
	f.announce(ctx, "10.0.0.1:80", func() bool { return true })
	f.until("10.0.0.1:80", "10.0.0.2:80")
	drains.Store(true)
	f.until("10.0.0.1:80")
	stop()
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	f.until()
	f.server.Shutdown()
	if got, err := f.directory.Ask(t.Context()); err == nil {
		t.Errorf("%q without a server, want an error", got)
	}
}

// TestClosedConnections checks that a worker and a sender connect again after the library has
// closed their connections permanently.
func TestClosedConnections(t *testing.T) {
	f := newFixture(t)
	defer func(before backoff.Ladder) { reconnectBackoff = before }(reconnectBackoff)
	// The limit is raised before the worker connects again.
	reconnectBackoff = backoff.Exponential(8*time.Second, 1, 8*time.Second)
	ctx, stop := context.WithCancel(t.Context())
	var limits atomic.Bool
	f.announce(ctx, "10.0.0.1:80", func() bool {
		if limits.CompareAndSwap(true, false) {
			f.limit(5) // the answer is longer
		}
		return true
	})
	f.until("10.0.0.1:80")
	limits.Store(true)
	conn := f.directory.conn
	if err := conn.PublishRequest("workers", nats.NewInbox(), nil); err != nil {
		t.Fatal(err)
	}
	clients := func(want int) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for f.server.NumClients() != want {
			if time.Now().After(deadline) {
				t.Fatalf("%d clients, want %d", f.server.NumClients(), want)
			}
			<-time.After(time.Millisecond)
		}
	}
	clients(1) // the worker's connection is closed
	if err := conn.Publish("other", make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	clients(0)
	f.limit(1 << 20)
	f.until("10.0.0.1:80")
	stop()
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
}

func TestCheckSubject(t *testing.T) {
	for _, text := range []string{"", "a b", "a.*", ">", ".a", "a.", "a..b"} {
		if CheckSubject(text) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if err := CheckSubject("penstock.workers.orders"); err != nil {
		t.Error(err)
	}
}
