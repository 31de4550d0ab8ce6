package listen

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// TestDatagramsAtStop checks datagrams that were received but are not submitted when the source
// stops. They must be counted as dropped, and the log must name the address from which most of them
// came.
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

// TestLongDatagram checks that long datagrams of a Unix socket are received whole. A datagram above
// the limit is not received. Such datagrams are counted, and logged together.
func TestLongDatagram(t *testing.T) {
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	const most = 1 << 20
	d := &Datagrams{Network: "unixgram", Host: h, MaxRecord: most, more: make(chan struct{}, 1)}
	sizes := []int{100 << 10, most, most + 1, most + 2, 3, most + 1}
	if err := d.receive(&datagramConn{sizes: sizes}); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, p := range d.pending {
		got = append(got, len(p.data))
	}
	if want := []int{100 << 10, most, 3}; !slices.Equal(got, want) {
		t.Errorf("received datagrams of %d bytes, want %d", got, want)
	}
	if n := h.Counted("datagrams_failed"); n != 3 {
		t.Errorf("%d datagrams count as failed, want 3", n)
	}
	d.reportDrops()
	d.reportDrops()
	const want = `msg="datagrams not received" datagrams=3 error="it has more than 1048576 ` +
		`bytes; raise max_record"`
	if log := h.Logged(); strings.Count(log, "\n") != 1 || !strings.Contains(log, want) {
		t.Errorf("the log is %q, want one line with %s", log, want)
	}
}

// datagramConn receives datagrams of the given sizes. Then it is closed.
type datagramConn struct {
	net.PacketConn
	sizes []int
}

// ReadFrom implements net.PacketConn.
func (c *datagramConn) ReadFrom(p []byte) (int, net.Addr, error) {
	if len(c.sizes) == 0 {
		return 0, nil, net.ErrClosed
	}
	n := min(c.sizes[0], len(p))
	c.sizes = c.sizes[1:]
	return n, nil, nil
}
