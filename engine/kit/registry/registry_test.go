//go:build !no_nats

package registry

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
)

// TestRegistry checks that workers are found while they announce themselves and are ready.
func TestRegistry(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	o := natsaccess.Options{URL: s.ClientURL()}
	log := slog.New(slog.DiscardHandler)
	d, err := Open(o, "workers", log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	until := func(want ...string) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			got, err := d.Ask(t.Context())
			if err == nil && slices.Equal(got, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
		}
	}
	until()
	var drains atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	announce := func(ctx context.Context, address string, ready func() bool) {
		go func() { ended <- Announce(ctx, o, "workers", address, ready, log) }()
	}
	announce(t.Context(), "10.0.0.2:80", func() bool { return !drains.Load() })
	announce(ctx, "10.0.0.1:80", func() bool { return true })
	until("10.0.0.1:80", "10.0.0.2:80")
	drains.Store(true)
	until("10.0.0.1:80")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	until()
	s.Shutdown()
	if got, err := d.Ask(t.Context()); err == nil {
		t.Errorf("%q without a server, want an error", got)
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
