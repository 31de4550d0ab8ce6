package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Streams accepts connections and submits their records to an intake.
type Streams struct {
	Network, Address string
	Connections      int
	IdleTime         time.Duration // time after which an idle connection is closed
	TLS              *tls.Config   // nil for none
	Intake           *intake.Intake
	Host             stream.Host
	// Framer returns the framer for a connection. peer is the address of the client without its
	// port, or "" for a Unix socket.
	Framer func(peer string) Framer
	// Bound is called with the address of the socket when the socket is open. Nil means no call.
	Bound func(net.Addr)

	mu     sync.Mutex        // guards the fields below
	open   map[net.Conn]bool // the value reports whether a new connection needs the place
	drain  bool
	since  time.Time // begin of the drain
	closed bool      // closeAll was called
}

// Run accepts connections until ctx is done.
func (s *Streams) Run(ctx context.Context) error {
	s.open = make(map[net.Conn]bool)
	inner, err := s.listen()
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	limited := Limit(inner, s.Connections)
	if s.Bound != nil {
		s.Bound(inner.Addr())
	}
	s.Host.Log().Info("listening", "network", s.Network, "address", inner.Addr().String(), "tls",
		s.TLS != nil)
	group := supervise.NewGroup(context.WithoutCancel(ctx))
	group.Go("accept", func(ctx context.Context) error { return s.accept(ctx, group, limited) })
	for ctx.Err() == nil && group.Context().Err() == nil {
		done := s.Intake.Producer()
		select {
		case <-s.Intake.Draining():
			s.setDraining(true)
			s.wait(ctx)
			done()
			if s.Intake.Accepting(ctx) == nil {
				s.setDraining(false)
			}
		case <-group.Context().Done():
			done()
		case <-ctx.Done():
			done()
		}
	}
	closed := limited.Close()
	group.Stop(nil)
	s.closeAll()
	return errors.Join(group.Wait(), ignoreClosed(closed))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// listen opens the socket. If a Unix socket is left from an ended process, listen first removes it.
func (s *Streams) listen() (net.Listener, error) {
	l, err := net.Listen(s.Network, s.Address)
	if s.Network != "unix" || !errors.Is(err, syscall.EADDRINUSE) ||
		!removeStale(s.Network, s.Address) {
		return l, err
	}
	return net.Listen(s.Network, s.Address)
}

// removeStale removes a Unix socket if no process listens on it. It reports whether it has removed
// one.
func removeStale(network, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.Dial(network, path)
	if err == nil {
		_ = c.Close() // a process listens
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) && os.Remove(path) == nil
}

// acceptPause is the wait after an error of Accept that may be temporary, such as too many open
// files.
const acceptPause = 100 * time.Millisecond

func (s *Streams) accept(ctx context.Context, group *supervise.Group, l *Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			s.Host.Log().Warn("connection not accepted; retrying", "error", err)
			timer := time.NewTimer(acceptPause)
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
		}
		limited := c.(*Conn)
		if s.TLS != nil {
			c = tls.Server(c, s.TLS)
		}
		limited.OnReplace(func() { s.check(c) })
		s.add(c)
		group.Go("connection", func(ctx context.Context) error {
			defer s.remove(c)
			s.pump(ctx, c, limited.SetIdle)
			return nil
		})
	}
}

func (s *Streams) add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = false
	switch {
	case s.closed: // accepted just before the listener was closed
		_ = c.Close() // its read returns
	case s.drain:
		_ = c.SetReadDeadline(past)
	}
}

// past is a deadline in the past, with which a read returns at once.
var past = time.Unix(1, 0)

// remove closes a connection after its records were submitted.
func (s *Streams) remove(c net.Conn) {
	_ = c.Close() // its data was read
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// readKind is the purpose of a read from a connection.
type readKind uint8

const (
	// ordinaryRead waits for data until the connection times out.
	ordinaryRead readKind = iota
	// drainRead gets data that the system has received before a drain (see lastReads).
	drainRead
	// checkRead gets data that the system has received for an idle connection, whose place a new
	// one needs. If there is none, the connection is closed.
	checkRead
)

// setReadDeadline sets the deadline of the next read from c, and returns the kind of this read. The
// deadline is t for an ordinary read, and last.deadline for a read of another kind.
func (s *Streams) setReadDeadline(c net.Conn, t time.Time, last *lastReads) readKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := ordinaryRead
	switch {
	case s.drain:
		kind = drainRead
	case s.open[c]:
		kind = checkRead
	}
	if kind != ordinaryRead {
		t = last.deadline(time.Now())
	}
	_ = c.SetReadDeadline(t) // if the connection is closed, the next read fails
	return kind
}

// check makes the running read from an idle connection return at once. The next read is a
// checkRead.
func (s *Streams) check(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.open[c]; !open || s.drain { // during a drain it is closed soon
		return
	}
	s.open[c] = true
	_ = c.SetReadDeadline(past)
}

// keep ends the check of a connection that has got data.
func (s *Streams) keep(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[c] {
		s.open[c] = false
	}
}

// setDraining(true) makes the running reads from all connections return at once. The next reads
// from a connection are for data that the system has already received (see lastReads).
// setDraining(false) ends this: the next setReadDeadline of a connection lets it be read again.
func (s *Streams) setDraining(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain, s.since = on, time.Now()
	for c := range s.open {
		if on {
			_ = c.SetReadDeadline(past)
		}
	}
}

// drainedFor returns the time since the drain began, or 0 if the intake does not drain.
func (s *Streams) drainedFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drain {
		return 0
	}
	return time.Since(s.since)
}

// isInterrupted reports whether the reads of kind ordinaryRead from c must return at once.
func (s *Streams) isInterrupted(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain || s.open[c]
}

// waitEvery is the interval of checks in wait.
const waitEvery = 10 * time.Millisecond

// wait waits until all connections are closed, which means that all their records are submitted. It
// ends earlier when ctx is done.
func (s *Streams) wait(ctx context.Context) {
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for {
		s.mu.Lock()
		n := len(s.open)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// closeAll closes all connections, and those that are added later.
func (s *Streams) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Close() // its read returns
	}
}
