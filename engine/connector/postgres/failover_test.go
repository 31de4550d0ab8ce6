package postgres_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
)

// warningHost sends to seen for each log line that contains part.
type warningHost struct {
	stream.Host
	part string
	seen chan struct{}
}

func (h *warningHost) Log() *slog.Logger { return slog.New(slog.NewTextHandler(h, nil)) }

// Write implements io.Writer.
func (h *warningHost) Write(p []byte) (int, error) {
	if strings.Contains(string(p), h.part) {
		select {
		case h.seen <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

// TestReadOnlySession checks Load if its session began read-only, as on a standby. Load succeeds
// with a new session when new sessions are writable.
func TestReadOnlySession(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE ROLE failover LOGIN SUPERUSER")
	t.Cleanup(func() { d.exec(t, "DROP OWNED BY failover CASCADE; DROP ROLE failover") })
	d.exec(t, "ALTER ROLE failover SET default_transaction_read_only = on")
	u, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("failover")
	o := d.options("lines")
	o.URL = u.String()
	host := &warningHost{Host: connectortest.NewHost(t), part: "SQLSTATE 25006",
		seen: make(chan struct{}, 1)}
	s := newSink(t, o, host)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Open(ctx, stream.SinkOptions{Pipeline: "p", Route: "r",
		Lanes: func([]stream.Lane) {}}); err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := s.Load(ctx)
		loaded <- err
	}()
	select {
	case <-host.seen:
	case err := <-loaded:
		t.Fatalf("Load over a read-only session: %v", err)
	}
	d.exec(t, "ALTER ROLE failover RESET default_transaction_read_only")
	if err := <-loaded; err != nil {
		t.Errorf("Load after the failover: %v", err)
	}
}
