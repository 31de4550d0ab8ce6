package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

const (
	// maxDatagram is the maximum size of a UDP datagram, rounded up.
	maxDatagram = 64 << 10
	// pendingBytes bounds the total size of the datagrams that wait for room in the intake. Further
	// datagrams are dropped and counted, because UDP cannot make their senders wait.
	pendingBytes  = 4 << 20
	receiveBuffer = 4 << 20
	dropsEvery    = time.Second
)

// Datagrams receives datagrams and submits them to an intake. Each datagram is a record.
type Datagrams struct {
	Network, Address string
	Intake           *intake.Intake
	Host             stream.Host
	// MaxRecord bounds the length of a datagram of a Unix socket, which may be longer than one of
	// UDP. A longer datagram is dropped and counted. A bound of less than 64 KiB counts as 64 KiB.
	MaxRecord int
	// Record adds the record of a datagram to out. peer is the address of the sender.
	Record func(out *intake.Records, datagram []byte, peer string)
	// Bound is called with the address of the socket when the socket is open. Nil means no call.
	Bound func(net.Addr)

	more chan struct{} // buffer of 1; receives a value when pending is not empty
	// systemDrops returns the number of datagrams that the system has dropped at a socket. Tests
	// replace it. Nil means the function systemDrops.
	systemDrops func(local *net.UDPAddr) int64

	mu       sync.Mutex // guards the fields below
	pending  []datagram
	bytes    int
	dropped  drops
	failed   failures
	bySystem int64         // drops of the system that were counted
	emptied  chan struct{} // closed when receive has emptied the socket; nil if it need not
}

type datagram struct {
	data []byte
	peer string
}

// failures are the datagrams that were not received since the last report.
type failures struct {
	total int64
	last  error // the reason of the last one
}

// Run receives datagrams until ctx is done.
func (d *Datagrams) Run(ctx context.Context) error {
	d.more = make(chan struct{}, 1)
	if d.systemDrops == nil {
		d.systemDrops = systemDrops
	}
	c, err := net.ListenPacket(d.Network, d.Address)
	if d.Network == "unixgram" && errors.Is(err, syscall.EADDRINUSE) &&
		removeStale(d.Network, d.Address) {
		c, err = net.ListenPacket(d.Network, d.Address)
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if b, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		_ = b.SetReadBuffer(receiveBuffer) // the system may use a smaller buffer
	}
	if d.Bound != nil {
		d.Bound(c.LocalAddr())
	}
	d.Host.Log().Info("listening", "network", d.Network, "address", c.LocalAddr().String())
	group := supervise.NewGroup(ctx)
	group.Go("receive", func(context.Context) error { return d.receive(c) })
	group.Go("submit", func(ctx context.Context) error { return d.submit(ctx, c) })
	group.Go("drops", func(ctx context.Context) error { return d.watchDrops(ctx, c.LocalAddr()) })
	<-group.Context().Done()
	d.awaitEmpty(c)                   // the arrived datagrams count as dropped below
	d.countSystemDrops(c.LocalAddr()) // the system forgets them when the socket is closed
	closed := c.Close()
	if d.Network == "unixgram" {
		_ = os.Remove(d.Address) // net does not remove this kind of socket
	}
	ended := group.Wait()
	for _, p := range d.pending { // received after the last submission
		d.drop(p.peer)
	}
	d.reportDrops()
	return errors.Join(ended, closed)
}

// receive reads datagrams until the socket is closed. It never waits for room in the intake.
func (d *Datagrams) receive(c net.PacketConn) error {
	buf := make([]byte, d.longest()+1) // ReadFrom truncates a longer datagram without an error
	for {
		switch _, err := d.receiveOne(c, buf); {
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			d.receiveRest(c, buf)
		}
	}
}

// longest returns the maximum length of a datagram.
func (d *Datagrams) longest() int {
	if d.Network == "unixgram" {
		return max(maxDatagram, d.MaxRecord)
	}
	return maxDatagram
}

// receiveOne receives a datagram and keeps it. It counts a datagram that cannot be received. The
// error is net.ErrClosed, os.ErrDeadlineExceeded or nil.
func (d *Datagrams) receiveOne(c net.PacketConn, buf []byte) (n int, err error) {
	n, from, err := c.ReadFrom(buf)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	if most := d.longest(); err == nil && n > most {
		err = fmt.Errorf("it has more than %d bytes; raise max_record", most)
	}
	if err != nil {
		d.Host.Count("datagrams_failed", 1)
		d.mu.Lock()
		d.failed.total++
		d.failed.last = err
		d.mu.Unlock()
		return n, nil
	}
	peer := ""
	if u, ok := from.(*net.UDPAddr); ok {
		peer = u.IP.String()
	}
	d.keep(buf[:n], peer)
	return n, nil
}

// empty makes receive read the datagrams that the system has already received, within the limits
// of lastReads. The returned channel is closed afterwards.
func (d *Datagrams) empty(c net.PacketConn) (emptied <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.emptied = make(chan struct{})
	_ = c.SetReadDeadline(past) // the running read returns, even if the socket is closed
	return d.emptied
}

// awaitEmpty empties the socket. It returns earlier if receive has failed.
func (d *Datagrams) awaitEmpty(c net.PacketConn) {
	limit := time.NewTimer(2 * lastTime)
	defer limit.Stop()
	select {
	case <-d.empty(c):
	case <-limit.C:
	}
}

// receiveRest does what empty has asked for.
func (d *Datagrams) receiveRest(c net.PacketConn, buf []byte) {
	var last lastReads
	for {
		begun := time.Now()
		_ = c.SetReadDeadline(last.deadline(begun))
		n, err := d.receiveOne(c, buf)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			n = max(n, 1) // a datagram may be empty
		}
		last.add(n, time.Since(begun))
		if errors.Is(err, net.ErrClosed) || last.ended() {
			break
		}
	}
	_ = c.SetReadDeadline(time.Time{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.emptied != nil {
		close(d.emptied)
		d.emptied = nil
	}
}

// keep stores a copy of a datagram until submit passes it on. If the stored datagrams would exceed
// pendingBytes, keep drops the datagram and counts it. If none is stored, it stores any datagram.
func (d *Datagrams) keep(data []byte, peer string) {
	d.mu.Lock()
	full := d.bytes > 0 && d.bytes+len(data) > pendingBytes
	if !full {
		d.pending = append(d.pending, datagram{bytes.Clone(data), peer})
		d.bytes += len(data) + intake.RecordOverhead
	}
	d.mu.Unlock()
	if full {
		d.drop(peer)
		return
	}
	select {
	case d.more <- struct{}{}:
	default:
	}
}

// drop counts a datagram that was received but will not be submitted.
func (d *Datagrams) drop(peer string) {
	d.mu.Lock()
	d.dropped.add(peer)
	d.mu.Unlock()
	d.Host.Count("datagrams_dropped", 1)
}

// reportDrops logs the datagrams that were dropped or not received since its last call.
func (d *Datagrams) reportDrops() {
	d.mu.Lock()
	dropped, failed := d.dropped, d.failed
	d.dropped, d.failed = drops{}, failures{}
	d.mu.Unlock()
	if failed.total > 0 {
		d.Host.Log().Warn("datagrams not received", "datagrams", failed.total,
			"error", failed.last)
	}
	if dropped.total == 0 {
		return
	}
	peer, count := dropped.most()
	d.Host.Log().Warn("datagrams dropped: the source is full or has stopped",
		"datagrams", dropped.total, "peer", peer, "of_peer", count)
}

// submit submits received datagrams to the intake until ctx is done. When the intake drains, it
// still submits those that the system has already received.
func (d *Datagrams) submit(ctx context.Context, c net.PacketConn) error {
	for {
		if d.Intake.Accepting(ctx) != nil {
			return nil
		}
		d.submitUntilDrain(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (d *Datagrams) submitUntilDrain(ctx context.Context, c net.PacketConn) {
	defer d.Intake.Producer()()
	draining := d.Intake.Draining()
	var emptied <-chan struct{}
	for last := false; !last; {
		select {
		case <-d.more:
		case <-draining:
			draining, emptied = nil, d.empty(c)
		case <-emptied:
			last = true
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		pending := d.pending
		d.pending, d.bytes = nil, 0
		d.mu.Unlock()
		var out intake.Records
		for _, p := range pending {
			d.Record(&out, p.data, p.peer)
		}
		if out.Len() > 0 && d.Intake.Add(ctx, out) != nil {
			return
		}
	}
}

// watchDrops counts and logs dropped datagrams each second until ctx is done.
func (d *Datagrams) watchDrops(ctx context.Context, local net.Addr) error {
	tick := time.NewTicker(dropsEvery)
	defer tick.Stop()
	for {
		d.reportDrops()
		d.countSystemDrops(local)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// countSystemDrops counts and logs the datagrams that the system has dropped since the last call,
// because the receive buffer of the socket was full. The system reports them only on Linux and for
// UDP.
func (d *Datagrams) countSystemDrops(local net.Addr) {
	u, ok := local.(*net.UDPAddr)
	if !ok {
		return
	}
	total := d.systemDrops(u)
	d.mu.Lock()
	added := total - d.bySystem
	d.bySystem = max(d.bySystem, total)
	d.mu.Unlock()
	if added > 0 {
		d.Host.Count("datagrams_dropped", added)
		d.Host.Log().Warn("the system dropped datagrams: its receive buffer was full",
			"datagrams", added)
	}
}
