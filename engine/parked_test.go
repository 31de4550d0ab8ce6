package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

func newParking(t *testing.T, config string) (*engine.Engine, error) {
	t.Helper()
	cfg, err := engine.Parse([]byte(config), all.Components()...)
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(cfg, engine.Options{Log: slog.New(slog.DiscardHandler)})
}

// TestParkingNeedsAFixedSource checks that a sink that parks deliveries is refused, before anything
// starts, if a consumer group assigns the partitions of its source. The partitions of the group may
// move to other nodes, but parked deliveries cannot.
func TestParkingNeedsAFixedSource(t *testing.T) {
	_, err := newParking(t, fmt.Sprintf(`
state: %q
pipelines:
  paid:
    source: {kafka: {brokers: ["127.0.0.1:1"], topics: [orders], group: penstock}}
    sink: {http: {url: '"https://shop.example/"', allow: {hosts: [shop.example]}}}
`, t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "parks deliveries on this node") {
		t.Errorf("kafka with a sink that parks: %v", err)
	}
}

// TestGatePark checks that the worker of a full store has the gate park.
func TestGatePark(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter,
		_ *nethttp.Request) {
		w.WriteHeader(nethttp.StatusNotFound)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(dir, "in")
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 100_000) + "\n"
	if err := os.WriteFile(filepath.Join(in, "a.log"), []byte(strings.Repeat(line, 20)),
		0o600); err != nil {
		t.Fatal(err)
	}
	e, err := newParking(t, fmt.Sprintf(`
state: %q
pipelines:
  paid:
    source: {spool_dir: {path: %q, quiet_period: 1ms}}
    batch: {records: 1}
    sink:
      http:
        url: '%q'
        allow: {hosts: [%s], ports: [%s], http: true, private: true}
        parked: {bytes: 1MiB}
`, filepath.Join(dir, "state"), in, server.URL, u.Hostname(), u.Port()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for parked := false; !parked && ctx.Err() == nil; <-tick.C {
		for _, r := range e.Status().Routes {
			parked = len(r.Workers) > 0 && r.Workers[0].Gate == "park" && r.Parked > 0 &&
				r.Waiting > 0
		}
	}
	if ctx.Err() != nil {
		t.Errorf("no worker has the gate park within a minute: %+v", e.Status().Routes)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
