package pipeline

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/supervise"
)

// TestAdminStartsAgain closes the listener of the admin pages, and checks that they are served
// again at the same address.
func TestAdminStartsAgain(t *testing.T) {
	ready := func() status.Status { return status.Status{Version: 1, Ready: true} }
	p := &pages{o: admin.Options{
		Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Status: ready, Live: ready,
	}}
	server, err := admin.Listen(p.o)
	if err != nil {
		t.Fatal(err)
	}
	p.server, p.o.Address = server, server.Addr()
	tree, err := supervise.New("test", supervise.Spec{Backoff: backoff.Fixed(time.Millisecond)}, p.child())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- tree.Serve(ctx) }()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for answered := false; !answered; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.o.Address+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			answered = res.StatusCode == http.StatusOK && res.Body.Close() == nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the pages were not served again")
		}
	}
	for _, c := range tree.Status().Children {
		if c.Name != "admin" || c.Starts < 2 {
			t.Errorf("%+v", c)
		}
	}
	stop()
	<-ended
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
