package listen

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/supervise"
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

// TestArrivedAtStop checks datagrams that the system has received, and that the source has not read
// when it stops. They must be counted as dropped.
func TestArrivedAtStop(t *testing.T) {
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	in, err := intake.New(intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const sent = 100
	d := &Datagrams{Network: "udp", Address: "127.0.0.1:0", Intake: in, Host: h}
	d.Bound = func(a net.Addr) {
		client, err := net.Dial("udp", a.String())
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		for range sent {
			if _, err := client.Write([]byte("datagram")); err != nil {
				t.Error(err)
			}
		}
		cancel() // nothing is submitted
	}
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if dropped := h.Counted("datagrams_dropped"); dropped != sent {
		t.Errorf("%d datagrams are counted as dropped, want %d", dropped, sent)
	}
}

// waitingConn has datagrams that the system has received, but that are not read until the deadline
// of the reads is set. Afterwards it gets no datagrams until it is closed.
type waitingConn struct {
	net.PacketConn
	waiting  []string
	deadline chan time.Time // buffer of 1
	end      chan struct{}
}

// SetReadDeadline implements net.PacketConn.
func (c *waitingConn) SetReadDeadline(t time.Time) error {
	select {
	case <-c.deadline:
	default:
	}
	c.deadline <- t
	return nil
}

// ReadFrom implements net.PacketConn.
func (c *waitingConn) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case t := <-c.deadline:
		switch {
		case t.IsZero():
			<-c.end
			return 0, nil, net.ErrClosed
		case t.Equal(past) || len(c.waiting) == 0:
			return 0, nil, os.ErrDeadlineExceeded
		}
		n := copy(p, c.waiting[0])
		c.waiting = c.waiting[1:]
		return n, &net.UDPAddr{}, nil
	case <-c.end:
		return 0, nil, net.ErrClosed
	}
}

// TestDatagramsAtDrain checks datagrams that the system has received before a drain, and that the
// source has not read yet. They must be submitted before the drain ends.
func TestDatagramsAtDrain(t *testing.T) {
	h := streamtest.NewHost(t)
	in, err := intake.New(intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := in.Open(t.Context(), stream.OpenOptions{
		Route:  streamtest.Route,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &waitingConn{waiting: []string{"one", "", "", "four"}, deadline: make(chan time.Time, 1),
		end: make(chan struct{})}
	d := &Datagrams{Network: "udp", Intake: in, Host: h, more: make(chan struct{}, 1),
		Record: func(out *intake.Records, datagram []byte, _ string) { out.Add(datagram) }}
	group := supervise.NewGroup(t.Context())
	group.Go("receive", func(context.Context) error { return d.receive(c) })
	submitting := make(chan struct{})
	group.Go("submit", func(ctx context.Context) error {
		close(submitting)
		return d.submit(ctx, c)
	})
	<-submitting
	var got []string
	for err = nil; err == nil; {
		b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 10, Records: 10})
		if len(got) == 0 {
			reader.(stream.DrainingReader).Drain()
		}
		err = reader.Read(t.Context(), b)
		b.Split()
		for i := range b.Records {
			got = append(got, string(b.Text(i)))
		}
	}
	if want := []string{"one", "", "", "four"}; err != io.EOF || !slices.Equal(got, want) {
		t.Errorf("the draining route has read %q, %v; want %q and the end", got, err, want)
	}
	close(c.end)
	group.Stop(nil)
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSystemDropsAtStop checks datagrams that the system drops just before the source stops. They
// must be counted.
func TestSystemDropsAtStop(t *testing.T) {
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	in, err := intake.New(intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &Datagrams{Network: "udp", Address: "127.0.0.1:0", Intake: in, Host: h}
	looked := make(chan struct{}, 10)
	d.systemDrops = func(*net.UDPAddr) int64 {
		looked <- struct{}{}
		if ctx.Err() != nil {
			return 7
		}
		return 2
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	<-looked
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if dropped := h.Counted("datagrams_dropped"); dropped != 7 {
		t.Errorf("%d datagrams are counted as dropped, want 7", dropped)
	}
}

// TestSystemDrops overflows the receive buffer of a socket. The drops must not count for another
// socket with the same port.
func TestSystemDrops(t *testing.T) {
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n" +
		" 1: 0100007F:0050 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 0 5\n" +
		" 2: 0200007F:0050 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 2 2 0 6\n"
	if n := dropsIn(table, "0200007F:0050"); n != 6 {
		t.Errorf("%d drops in the table, want 6", n)
	}
	full, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	local := full.LocalAddr().(*net.UDPAddr)
	_ = full.SetReadBuffer(1)
	client, err := net.DialUDP("udp", nil, local)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 1000 {
		_, _ = client.Write(make([]byte, 1000)) // the system may drop it
	}
	if drops := systemDrops(local); (drops > 0) != (runtime.GOOS == "linux") {
		t.Errorf("%d drops at the full socket", drops)
	}
	other := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: local.Port}
	if drops := systemDrops(other); drops != 0 {
		t.Errorf("%d drops at another address", drops)
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
