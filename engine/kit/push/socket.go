package push

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

// Socket is a source that reads from connections or datagrams. Its clients get no answers.
type Socket struct {
	source
	// Framer returns the framer for a connection. peer is the address of the peer.
	Framer func(peer string) listen.Framer
	// Record adds the record of a datagram to out. peer is the address of the sender. Only one
	// goroutine calls Record.
	Record func(out *intake.Records, datagram []byte, peer string)

	o         *SocketOptions
	maxRecord stream.Size
	host      stream.Host
	bound     chan net.Addr // buffer of 1
}

// NewSocket returns a Socket. It does not open a socket. Set Framer and Record before Run.
func NewSocket(o *SocketOptions, maxRecord stream.Size, io intake.Options, h stream.Host) (
	*Socket, error,
) {
	inner, err := newSource(&o.Options, maxRecord, io, h)
	if err != nil {
		return nil, err
	}
	for _, counter := range listen.Counters {
		h.Count(counter, 0)
	}
	return &Socket{
		source: inner, o: o, maxRecord: maxRecord, host: h, bound: make(chan net.Addr, 1),
	}, nil
}

// Bound returns a channel that receives the address when the socket is open.
func (s *Socket) Bound() <-chan net.Addr { return s.bound }

// Run receives records until ctx is done.
func (s *Socket) Run(ctx context.Context) error {
	bound := func(a net.Addr) { s.bound <- a }
	if s.o.Network == "udp" || s.o.Network == "unixgram" {
		d := &listen.Datagrams{
			Network: s.o.Network, Address: s.o.Listen, Intake: s.Intake, Host: s.host, Bound: bound,
			MaxRecord: int(s.maxRecord), Record: s.Record,
		}
		return d.Run(ctx)
	}
	var config *tls.Config
	if s.o.TLS.On() {
		var err error
		if config, err = s.o.TLS.Config(s.host.Log()); err != nil {
			return err
		}
	}
	streams := &listen.Streams{
		Network: s.o.Network, Address: s.o.Listen, Connections: s.o.Connections, TLS: config,
		Intake: s.Intake, Host: s.host, Bound: bound, Framer: s.Framer, IdleTime: s.o.IdleTime,
	}
	return streams.Run(ctx)
}
