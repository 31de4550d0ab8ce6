package listen

import (
	"context"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// TestDatagramsAtStop checks that datagrams that were received but not submitted when the source
// stops are counted as dropped, and that the log names the address of most of them.
func TestDatagramsAtStop(t *testing.T) {
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	in, err := intake.New(intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	d := &Datagrams{Network: "udp", Address: "127.0.0.1:0", Intake: in, Host: h}
	for _, peer := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.2"} {
		d.keep([]byte("datagram"), peer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is submitted any more
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if dropped := h.Counted("datagrams_dropped"); dropped != 3 {
		t.Errorf("%d datagrams are counted as dropped, want 3", dropped)
	}
	if want := "datagrams=3 peer=10.0.0.2 of_peer=2"; !strings.Contains(h.Logged(), want) {
		t.Errorf("the log has no %q:\n%s", want, h.Logged())
	}
}
