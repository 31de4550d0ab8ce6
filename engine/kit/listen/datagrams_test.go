package listen

import (
	"context"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestDatagramsAtStop checks that datagrams that were received but not submitted when the source
// stops are counted as dropped.
func TestDatagramsAtStop(t *testing.T) {
	h := streamtest.NewHost(t)
	in, err := intake.New(intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	d := &Datagrams{Network: "udp", Address: "127.0.0.1:0", Intake: in, Host: h}
	for range 3 {
		d.keep([]byte("datagram"), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is submitted any more
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if dropped := h.Counted("datagrams_dropped"); dropped != 3 {
		t.Errorf("%d datagrams are counted as dropped, want 3", dropped)
	}
}
