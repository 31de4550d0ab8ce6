package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
)

// Framer cuts the bytes of one connection into records. If Frame returns an error, the connection
// is closed.
type Framer interface {
	// Space returns the buffer for the next read.
	Space() []byte
	// Frame returns the records that are complete after a read of n bytes into Space.
	Frame(n int) (intake.Records, error)
	// Rest returns the remaining bytes as a record. It is called when the connection has ended.
	Rest() intake.Records
	// Pending returns the number of bytes after the last complete record.
	Pending() int
}

// handshakeTime bounds the duration of a TLS handshake.
const handshakeTime = 10 * time.Second

// pump performs the TLS handshake of a connection, if it has one, and submits its records to the
// intake. If the intake is full, pump stops reading, and the sender must wait (backpressure). pump
// ends in these cases:
//
//   - The handshake fails, the connection ends, or its data is malformed.
//   - No data arrives for s.IdleTime, or a record stays incomplete for this time.
//   - The intake drains, and no more reads are allowed (see lastReads).
//   - A new connection needs the place of this one, for which no data has arrived.
//   - The source stops.
//
// Before the handshake, and before an ordinary read if it has no part of a record, pump calls
// evict(true). Another connection may then take the place of this one (see Streams.check). After
// the handshake, and when data has arrived, pump calls evict(false).
func (s *Streams) pump(ctx context.Context, c net.Conn, evict func(bool)) {
	h, peer := s.Host, peerOf(c)
	f := s.Framer(peer)
	h.Count("connections", 1)
	// A client that connects again and again must not delay the drain.
	last := lastReads{spent: s.drainedFor()}
	evict(true)
	if !s.handshake(ctx, c, &last) {
		return
	}
	evict(false)
	until := time.Now().Add(s.IdleTime)
	for {
		kind := s.setReadDeadline(c, until, &last)
		before, begun := f.Pending(), time.Now()
		if kind == ordinaryRead {
			evict(before == 0)
		}
		n, err := c.Read(f.Space())
		if n > 0 {
			s.keep(c)
			evict(false)
		}
		if kind != ordinaryRead {
			last.add(n, time.Since(begun))
		}
		if kind == checkRead && n > 0 {
			// The connection stays, and the next check has its own limits.
			last = lastReads{spent: s.drainedFor()}
		}
		records, wrong := f.Frame(n)
		if records.Len() > 0 && s.Intake.Add(ctx, records) != nil { // the source stops
			h.Count("bytes_discarded", int64(f.Pending()))
			return
		}
		if before == 0 || records.Len() > 0 { // otherwise the bytes continue a record
			until = time.Now().Add(s.IdleTime)
		}
		switch {
		case wrong != nil:
			h.Count("connections_malformed", 1)
			h.Count("bytes_discarded", int64(f.Pending()))
			h.Log().Warn("connection closed: malformed data", "peer", peer, "error",
				wrong)
			return
		case err == nil:
		case kind == ordinaryRead && errors.Is(err, os.ErrDeadlineExceeded) && s.isInterrupted(c):
			// the next read gets the data that has arrived
		case kind != ordinaryRead && errors.Is(err, os.ErrDeadlineExceeded) && !last.ended():
		case errors.Is(err, io.EOF):
			_ = s.Intake.Add(ctx, f.Rest()) // this fails only when the source stops
			return
		default:
			if kind == drainRead && last.isExhausted() {
				h.Log().Warn("connection closed by a stop while its client was sending",
					"peer", peer)
			}
			if rest := f.Pending(); rest > 0 {
				h.Count("bytes_discarded", int64(rest))
				h.Log().Warn("connection closed inside a record", "peer", peer,
					"bytes", rest, "error", err)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) && kind == ordinaryRead {
				h.Count("connections_timed_out", 1)
			}
			return
		}
	}
}

// handshake performs the TLS handshake if the connection has one. It reports whether the connection
// can be read.
func (s *Streams) handshake(ctx context.Context, c net.Conn, last *lastReads) bool {
	secure, ok := c.(*tls.Conn)
	if !ok {
		return true
	}
	s.setReadDeadline(c, time.Now().Add(handshakeTime), last)
	err := secure.HandshakeContext(ctx)
	switch {
	case err == nil:
		return true
	case errors.Is(err, io.EOF): // such as the check of a load balancer
	case errors.Is(err, net.ErrClosed), s.isInterrupted(c), ctx.Err() != nil: // closed here
	default:
		s.Host.Count("handshakes_failed", 1)
		s.Host.Log().Warn("connection closed: TLS handshake failed", "peer", peerOf(c), "error",
			err)
	}
	return false
}

// peerOf returns the address of the peer without its port. It returns "" if the peer has no
// address.
func peerOf(c net.Conn) string {
	if host, _, err := net.SplitHostPort(c.RemoteAddr().String()); err == nil {
		return host
	}
	return ""
}

// Counters lists the names of the counters of [Streams] and [Datagrams]. A source with a [Framer]
// that returns errors also has connections_malformed.
var Counters = []string{
	"connections", "connections_timed_out", "handshakes_failed", "bytes_discarded",
	"datagrams_failed", "datagrams_dropped",
}
